// Where heads lie in memory, for all kernels of attention.
#pragma once

// Strides, in elements, of batch, head and position; 0 where a mask or bias is broadcast.
// args  q (B, n.nh, n.T, n.D) at n.q; dq (B, n.nh, n.T, n.D) at n.dq; o, dout (B, n.nh, n.T, n.Dv) at n.o;
//       k (B, n.nh // n.group, n.S, n.D) at n.k; dk (B, n.nh // n.group, n.S, n.D) at n.dk;
//       v (B, n.nh // n.group, n.S, n.Dv) at n.v; dv (B, n.nh // n.group, n.S, n.Dv) at n.dv;
//       mask? (B, n.nh, n.T, n.S) at n.mask; bias? (B, n.nh, n.T, n.S) at n.bias;
//       lse (B, n.nh, n.T, 2); delta (B, n.nh, n.T); keep? (B, n.nh, n.T, n.S)
struct Heads {
  long long nh, group, T, S, D, Dv;
  long long q[3], k[3], v[3], o[3], mask[4], bias[4], dq[3], dk[3], dv[3];
};
