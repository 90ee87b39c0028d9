// Where heads lie in memory, for all kernels of attention.
#pragma once

// q (B, nh, T, D), k (B, nh / group, S, D), v (B, nh / group, S, Dv), o (B, nh, T, Dv), mask and bias (B, nh, T, S):
// strides, in elements, of batch, head and position; 0 where a mask or bias is broadcast. The gradients have strides
// likewise. The last dim of all but mask and bias has stride 1.
struct Heads {
  long long nh, group, T, S, D, Dv;
  long long q[3], k[3], v[3], o[3], mask[4], bias[4], dq[3], dk[3], dv[3];
};
