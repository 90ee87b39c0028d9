// Counter-based random numbers: Philox 4x32-10. minigrad/backend/philox.py gives the same words.
// (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)
#pragma once
#include "common.cuh"

struct Words {
  unsigned w[4];
};

// Block `index` of the stream `key`: four words of 32 random bits, a pure function of `key` and `index`.
__device__ __forceinline__ Words philox(unsigned long long key, unsigned long long index) {
  unsigned c0 = unsigned(index), c1 = unsigned(index >> 32), c2 = 0, c3 = 0;
  unsigned k0 = unsigned(key), k1 = unsigned(key >> 32);
  auto round = [&] {
    unsigned long long p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
    c0 = unsigned(p1 >> 32) ^ c1 ^ k0;
    c1 = unsigned(p1);
    c2 = unsigned(p0 >> 32) ^ c3 ^ k1;
    c3 = unsigned(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  };
  UNROLL for (int pair = 0; pair < 5; pair++) round(), round();  // compilers unroll 5, but not all 10
  return {{c0, c1, c2, c3}};
}
