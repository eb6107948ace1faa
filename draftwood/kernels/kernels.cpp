// The library: the functions with extern "C" of these files. In one piece, so that templates are compiled once.

#include "attention.h"
#include "draws.h"
#include "layers.h"
#include "norms.h"
#include "rows.h"
#include "stack.h"
#include "top.h"
