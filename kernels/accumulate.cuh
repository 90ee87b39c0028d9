// What sums of T add up in: A, long long for integers and bools, R for floats.
#pragma once
#include "common.cuh"

template <bool real> struct Accumulator { typedef long long type; };
template <> struct Accumulator<true> { typedef R type; };
typedef Accumulator<(R(1) / 2 != 0)>::type A;  // R(1) / 2 is 0 for integers
