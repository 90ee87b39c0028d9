// Matrix products: y[i] = a[i] @ b[i] (+ bias), for batches of operands with any strides.
//
//   layout   a (n, k) and b (k, m) with any strides: transposed, broadcast (0), sliced; up to 14 batch dims, also of
//            any strides; y (batches, n, m) compact; bias (m,)
//   launch   in a 1-D grid, a block of SIDE² / (TN TM) threads for each tile of y, of each batch and each part of k.
//            Its threads share tiles, so, unlike the other kernels, this one is not right with one thread per block
//   equals   y = np.matmul(a, b); y += bias
//
// Compiled for tiles of SIDE × SIDE (128; or 64 for small products, for numbers of 8 bytes and for a READ over 1), and
// for READ_A and READ_B, which say how the threads read an operand:
//   0  neighbouring threads read across k, each V elements (16 bytes) at once
//   1  neighbouring threads read along k, each V elements at once
//   2  across k, one element at a time
//   3  along k, one element at a time, with any strides
// 0, 1 and 2 need a stride of 1 in the direction of reading; 0 and 1 also need the address, the size in that direction
// and the other strides to be multiples of V elements.
//
// A block goes through k in steps of STEP. It holds a's and b's part of a step in shared memory, with k as the outer
// index, and each thread adds TN × TM products to its registers for each k. Meanwhile the next step is on its way from
// global memory through registers to the other half of shared memory, so that one barrier for each step is enough.
// What limits the speed: with 8 × 8 products a thread reads 4 × 16 bytes of shared memory for each 64 multiplications.
// Including the copying of the next step, 512 of 578 instructions multiply: 0.89 of the peak, provided that two blocks
// of 8 warps, all that 128 registers a thread leave room for, hide every latency. Tensor cores are not used.
//
// If y has too few tiles to fill a GPU (as for weight gradients, where k counts the tokens of a batch), several blocks
// share a tile, each with a part of k. They write their sums to `partial`, which matmul_join adds up in a fixed order.
#include "common.cuh"

constexpr int V = sizeof(R) == 8 ? 2 : 4;  // elements moved at once
constexpr int TN = 8, TM = SIDE == 128 ? 8 : 4, THREADS = SIDE * SIDE / (TN * TM);
constexpr int STEP = SIDE == 128 || sizeof(R) == 8 ? 8 : 16;
constexpr int RESIDENT = (sizeof(R) == 8 ? 256 : 512) / THREADS;  // blocks on a multiprocessor: 255 or 128 registers
constexpr int PAD = 16 / sizeof(R);  // a warp's transposed stores then fall into different banks; SIDE 64: two in each

// Strides count elements: of a along n and k, of b along m and k, and of both along the batch dims, of which the last
// varies fastest in y. A block covers `part` values of k: a multiple of STEP, less than 2^31.
struct Product {
  long long n, m, k, part;
  long long a[2], b[2];
  long long batch_dims, batch[14], a_batch[14], b_batch[14];
};

template <typename W>
struct alignas(V * sizeof(W)) Vector {
  W v[V];
};

// SIDE rows of a, or columns of b, on their way to shared memory, STEP of their k at a time.
template <int READ>
struct Operand {
  static constexpr bool ALONG = READ % 2, WHOLE = READ < 2;
  static constexpr int LINE = (ALONG ? STEP : SIDE) / V;  // threads side by side in the direction of reading
  static constexpr int LINES = THREADS / LINE, CHUNKS = SIDE * STEP / V / THREADS;
  const T* x;               // this thread's first element
  long long across, along;  // strides
  int side, i, k;           // how many of the SIDE rows or columns exist, and where x is
  Vector<T> held[CHUNKS];

  __device__ __forceinline__ Operand(const T* from, const long long* strides, int side)
      : across(ALONG ? strides[0] : 1), along(READ == 1 ? 1 : strides[1]), side(side) {
    i = ALONG ? threadIdx.x / LINE : threadIdx.x % LINE * V;
    k = ALONG ? threadIdx.x % LINE * V : threadIdx.x / LINE;
    x = from + i * across + k * along;
  }

  // Reads the next step, of which `left` values of k exist. Beyond the edges it reads zeros.
  __device__ __forceinline__ void load(int left) {
    UNROLL for (int c = 0; c < CHUNKS; c++) {
      const T* p = x + c * LINES * (ALONG ? across : along);
      const int ic = i + (ALONG ? c * LINES : 0), kc = k + (ALONG ? 0 : c * LINES);
      const int found = ALONG ? (ic < side ? left - kc : 0) : (kc < left ? side - ic : 0);
      if (WHOLE) {
        held[c] = found > 0 ? *reinterpret_cast<const Vector<T>*>(p) : Vector<T>{};
      } else {
        UNROLL for (int e = 0; e < V; e++) held[c].v[e] = e < found ? p[e * (ALONG ? along : across)] : T(0);
      }
    }
    x += STEP * along;
  }

  __device__ __forceinline__ void store(R (*tile)[SIDE + PAD]) const {
    UNROLL for (int c = 0; c < CHUNKS; c++) {
      const int ic = i + (ALONG ? c * LINES : 0), kc = k + (ALONG ? 0 : c * LINES);
      Vector<R> x;
      UNROLL for (int e = 0; e < V; e++) x.v[e] = R(held[c].v[e]);
      if (ALONG) {
        UNROLL for (int e = 0; e < V; e++) tile[kc + e][ic] = x.v[e];
      } else {
        *reinterpret_cast<Vector<R>*>(&tile[kc][ic]) = x;
      }
    }
  }
};

// A thread has COUNT of SIDE elements, in pieces of V that are spread evenly. Returns where the piece of its element i
// begins.
template <int COUNT>
__device__ __forceinline__ int place(int i, int thread) {
  return i / V * (SIDE * V / COUNT) + thread * V;
}

// Writes a thread's part of a tile to y, whose rows are `stride` apart. Only rows × columns of the tile exist. Tiles of
// 64 write V at once where y allows. That takes V registers in a row, which tiles of 128 and those of doubles lack: some
// would be spilled, or fewer blocks be resident.
template <typename W>
__device__ __forceinline__ void write(W* y, long long stride, int rows, int columns, const R (&acc)[TN][TM],
                                      int row, int column) {
  const bool room = SIDE == 64 && sizeof(R) < 8;
  const bool whole = room && (unsigned long long)y % sizeof(Vector<W>) == 0 && stride % V == 0;
  UNROLL for (int i = 0; i < TN; i++) {
    const int at = place<TN>(i, row) + i % V;
    if (at >= rows) break;
    UNROLL for (int j = 0; j < TM; j += V) {
      const int first = place<TM>(j, column);
      Vector<W> z;
      UNROLL for (int e = 0; e < V; e++) z.v[e] = W(acc[i][j + e]);
      if (whole) {  // an index into Vectors: of `y + at * stride`, NVRTC would not see that it is aligned
        if (first < columns) reinterpret_cast<Vector<W>*>(y)[at * (stride / V) + first / V] = z;
      } else {
        UNROLL for (int e = 0; e < V; e++)
          if (first + e < columns) y[at * stride + first + e] = z.v[e];
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
matmul(T* __restrict__ y, R* __restrict__ partial, const T* __restrict__ a, const T* __restrict__ b,
       const T* __restrict__ bias, Product p) {
  alignas(16) __shared__ R as[2][STEP][SIDE + PAD];
  alignas(16) __shared__ R bs[2][STEP][SIDE + PAD];

  // Which tile: columns vary fastest, then rows, then batches, then parts of k.
  const unsigned across = (p.m + SIDE - 1) / SIDE, down = (p.n + SIDE - 1) / SIDE;
  const unsigned right = blockIdx.x % across, below = blockIdx.x / across % down, matrix = blockIdx.x / across / down;
  unsigned part = matrix;
  for (int d = p.batch_dims - 1; d >= 0; d--) {
    const unsigned size = p.batch[d], index = part % size;
    part /= size;
    a += index * p.a_batch[d];
    b += index * p.b_batch[d];
  }
  const long long row0 = (long long)below * SIDE, column0 = (long long)right * SIDE, k0 = part * p.part;
  const int rows = p.n - row0 < SIDE ? p.n - row0 : SIDE, columns = p.m - column0 < SIDE ? p.m - column0 : SIDE;
  int left = p.k - k0 < p.part ? p.k - k0 : p.part;
  Operand<READ_A> from_a(a + row0 * p.a[0] + k0 * p.a[1], p.a, rows);
  Operand<READ_B> from_b(b + column0 * p.b[0] + k0 * p.b[1], p.b, columns);

  // A warp is 4 × 8 threads, laid out so that two quarters of it read their 16 bytes of shared memory at once.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, WARPS = SIDE / TM / 8;
  const int row = warp / WARPS * 4 + lane / 16 * 2 + lane % 2, column = warp % WARPS * 8 + lane / 2 % 8;
  R acc[TN][TM];
  UNROLL for (int j = 0; j < TM; j++) {
    const int at = place<TM>(j, column) + j % V;
    acc[0][j] = bias && at < columns ? R(bias[column0 + at]) : R(0);
    UNROLL for (int i = 1; i < TN; i++) acc[i][j] = acc[0][j];
  }

  from_a.load(left);
  from_b.load(left);
  from_a.store(as[0]);
  from_b.store(bs[0]);
  __syncthreads();
  for (int now = 0; left > 0; now ^= 1) {
    left -= STEP;
    from_a.load(left);  // zeros after the last step: without a branch, the compiler schedules this freely
    from_b.load(left);
    UNROLL for (int k = 0; k < STEP; k++) {
      Vector<R> ak[TN / V], bk[TM / V];
      UNROLL for (int i = 0; i < TN / V; i++)
        ak[i] = *reinterpret_cast<const Vector<R>*>(&as[now][k][place<TN>(i * V, row)]);
      UNROLL for (int j = 0; j < TM / V; j++)
        bk[j] = *reinterpret_cast<const Vector<R>*>(&bs[now][k][place<TM>(j * V, column)]);
      UNROLL for (int i = 0; i < TN; i++)
        UNROLL for (int j = 0; j < TM; j++) acc[i][j] += ak[i / V].v[i % V] * bk[j / V].v[j % V];
    }
    from_a.store(as[now ^ 1]);  // no thread still reads this half: all have passed the barrier below since
    from_b.store(bs[now ^ 1]);
    __syncthreads();
  }

  const long long corner = (matrix * p.n + row0) * p.m + column0;
  if (partial) {
    write(partial + corner, p.m, rows, columns, acc, row, column);
  } else {
    write(y + corner, p.m, rows, columns, acc, row, column);
  }
}

// y = Σ partial over its first dim, + bias: partial (parts, size), y of size elements in rows of m.
extern "C" __global__ void matmul_join(T* __restrict__ y, const R* __restrict__ partial, const T* __restrict__ bias,
                                       long long parts, long long size, long long m) {
  grid_each(size, [&](long long i) {
    Total<R> s = {bias ? R(bias[i % m]) : R(0)};
    for (long long part = 0; part < parts; part++) s.add(partial[part * size + i]);
    y[i] = T(R(s));
  });
}
