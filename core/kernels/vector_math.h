// Elementary functions as branch-free arithmetic that the compiler turns into vector code. A lane and a
// scalar tail run the same operations, so a result depends on its own element only.
#pragma once
#include "vector_exp.h"
#include "vector_log.h"
#include "vector_normal.h"
#include "vector_trig.h"
