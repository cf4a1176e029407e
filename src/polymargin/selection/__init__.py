"""Selection: how C and the kernel's parameter are chosen inside ``fit``."""
