// Shared by the kernels of matrix products: the operands' strides, the tile of a block, and the reading of operands.
#pragma once
#include "common.cuh"

// Strides count elements: of a along n and k, of b along m and k, and of both along the batch dims. The last batch dim
// varies fastest in y. A block covers `part` values of k: a multiple of STEP, less than 2^31.
// args  dims = p.batch_dims; batch = p.batch[:dims]; y (*batch, p.n, p.m); bias? (p.m);
//       partial? (up(p.k, p.part), *batch, p.n, p.m);
//       a (*batch, p.n, p.k) at (*p.a_batch[:dims], *p.a); b (*batch, p.m, p.k) at (*p.b_batch[:dims], *p.b)
struct Product {
  long long n, m, k, part;
  long long a[2], b[2];
  long long batch_dims, batch[14], a_batch[14], b_batch[14];
};

template <typename W, int N>
struct alignas(N * sizeof(W)) Vector {
  W v[N];
};

// How a thread reads SIDE rows of a, or columns of b, STEP elements along k at a time: CHUNKS times V elements.
template <int READ, int V, int STEP, int THREADS>
struct Operand {
  static constexpr bool ALONG = READ % 2, WHOLE = READ < 2;
  static constexpr int LINE = (ALONG ? STEP : SIDE) / V;  // threads side by side in the direction of reading
  static constexpr int LINES = THREADS / LINE, CHUNKS = SIDE * STEP / V / THREADS;
  const T* x;               // this thread's first element
  long long across, along;  // strides
  int side, i, k;           // how many of the SIDE rows or columns exist, and where x is

  __device__ __forceinline__ Operand(const T* from, const long long* strides, int side)
      : across(ALONG ? strides[0] : 1), along(READ == 1 ? 1 : strides[1]), side(side) {
    i = ALONG ? threadIdx.x / LINE : threadIdx.x % LINE * V;
    k = ALONG ? threadIdx.x % LINE * V : threadIdx.x / LINE;
    x = from + i * across + k * along;
  }

  __device__ __forceinline__ int row(int chunk) const { return i + (ALONG ? chunk * LINES : 0); }
  __device__ __forceinline__ int step(int chunk) const { return k + (ALONG ? 0 : chunk * LINES); }

  // f(chunk, p, found) for each chunk of the next step: it begins at p, and `found` of its elements exist. left: how
  // many values of k are left.
  template <typename F>
  __device__ __forceinline__ void next(int left, F f) {
    UNROLL for (int c = 0; c < CHUNKS; c++) {
      const T* p = x + c * LINES * (ALONG ? across : along);
      f(c, p, ALONG ? (row(c) < side ? left - step(c) : 0) : (step(c) < left ? side - row(c) : 0));
    }
    x += STEP * along;
  }
  // A chunk, read one element at a time, with zeros for elements that do not exist.
  __device__ __forceinline__ Vector<T, V> gathered(const T* p, int found) const {
    Vector<T, V> some;
    UNROLL for (int e = 0; e < V; e++) some.v[e] = e < found ? p[e * (ALONG ? along : across)] : T(0);
    return some;
  }
};

// The tile of y that a block computes: columns vary fastest, then rows, then batches, then parts of k. a and b begin
// there then.
struct Part {
  const T *a, *b;
  long long row0, column0;  // the first row and column
  unsigned matrix;          // the number of the product: the index in the batch, and in the parts of k
  int rows, columns, left;  // how many rows and columns of the tile exist, and how many values of k

  __device__ __forceinline__ Part(const T* from_a, const T* from_b, const Product& p) : a(from_a), b(from_b) {
    const unsigned across = (p.m + SIDE - 1) / SIDE, down = (p.n + SIDE - 1) / SIDE;
    const unsigned right = blockIdx.x % across, below = blockIdx.x / across % down;
    matrix = blockIdx.x / across / down;
    unsigned part = matrix;
    for (int d = p.batch_dims - 1; d >= 0; d--) {
      const unsigned size = p.batch[d], index = part % size;
      part /= size;
      a += index * p.a_batch[d];
      b += index * p.b_batch[d];
    }
    row0 = (long long)below * SIDE, column0 = (long long)right * SIDE;
    const long long k0 = part * p.part;
    rows = p.n - row0 < SIDE ? p.n - row0 : SIDE, columns = p.m - column0 < SIDE ? p.m - column0 : SIDE;
    left = p.k - k0 < p.part ? p.k - k0 : p.part;
    a += row0 * p.a[0] + k0 * p.a[1];
    b += column0 * p.b[0] + k0 * p.b[1];
  }
  // Where the first row and column lie in y. This is computed when it is needed, to save registers.
  __device__ __forceinline__ long long corner(const Product& p) const { return (matrix * p.n + row0) * p.m + column0; }
};

// y = Σ partial over its first dim, + bias: partial (parts, size), y of size elements in rows of m.
// args  y (size); partial (parts, size); bias? (m)
extern "C" __global__ void matmul_join(T* __restrict__ y, const R* __restrict__ partial, const T* __restrict__ bias,
                                       long long parts, long long size, long long m) {
  grid_each(size, [&](long long i) {
    Total<R> s = {bias ? R(bias[i % m]) : R(0)};
    for (long long part = 0; part < parts; part++) s.add(partial[part * size + i]);
    y[i] = T(R(s));
  });
}
