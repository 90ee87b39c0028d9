// Matrix products: y[i] = a[i] @ b[i] (+ bias), for batches of operands with any strides.
//
//   layout   a (n, k) and b (k, m) with any strides: transposed, broadcast (0), sliced; up to 14 batch dims, also of
//            any strides; y (batches, n, m) compact; bias (m,)
//   launch   in a 1-D grid, a block of SIDE² / (TN TM) threads for each tile of y, of each batch and each part of k.
//            Its threads share tiles, so, unlike the other kernels, this one is not right with one thread per block
//   equals   y = np.matmul(a, b); y += bias
//
// It is compiled for tiles of SIDE × SIDE (128; or 64 for small products, for numbers of 8 bytes and for a READ over
// 1), and for READ_A and READ_B, which say how the threads read an operand:
//   0  neighbouring threads read across k, each V elements (16 bytes) at once
//   1  neighbouring threads read along k, each V elements at once
//   2  across k, one element at a time
//   3  along k, one element at a time, with any strides
// 0, 1 and 2 need a stride of 1 in the direction of reading; 0 and 1 also need the address, the size in that direction
// and the other strides to be multiples of V elements.
//
// A block goes through k in steps of STEP. It holds a's and b's part of a step in shared memory, with k as the outer
// index, and each thread adds TN × TM products to its registers for each k. Meanwhile the next step is copied from
// global memory through registers to the other half of shared memory, so that one barrier for each step is enough.
// What limits the speed: with 8 × 8 products a thread reads 4 × 16 bytes of shared memory for each 64 multiplications.
// Including the copying of the next step, 512 of 578 instructions multiply: 0.89 of the peak, provided that two blocks
// of 8 warps, all that 128 registers a thread leave room for, hide every latency. Tensor cores are not used.
//
// If y has too few tiles to fill a GPU (as for weight gradients, where k counts the tokens of a batch), several blocks
// share a tile, each with a part of k. They write their sums to `partial`, which matmul_join adds up in a fixed order.
#include "matmul.cuh"

constexpr int V = sizeof(R) == 8 ? 2 : 4;  // elements moved at once
constexpr int TN = 8, TM = SIDE == 128 ? 8 : 4, THREADS = SIDE * SIDE / (TN * TM);
constexpr int STEP = SIDE == 128 || sizeof(R) == 8 ? 8 : 16;
constexpr int RESIDENT = (sizeof(R) == 8 ? 256 : 512) / THREADS;  // blocks on a multiprocessor: 255 or 128 registers
constexpr int PAD = 16 / sizeof(R);  // a warp's transposed stores then fall into different banks; SIDE 64: two in each

// A step of an operand on its way through registers to shared memory, k by k.
template <int READ>
struct Moved : Operand<READ, V, STEP, THREADS> {
  using Operand<READ, V, STEP, THREADS>::Operand;
  Vector<T, V> held[Moved::CHUNKS];

  __device__ __forceinline__ void load(int left) {
    this->next(left, [&](int c, const T* p, int found) {
      if (Moved::WHOLE) held[c] = found > 0 ? *reinterpret_cast<const Vector<T, V>*>(p) : Vector<T, V>{};
      else held[c] = this->gathered(p, found);
    });
  }
  __device__ __forceinline__ void store(R (*tile)[SIDE + PAD]) const {
    UNROLL for (int c = 0; c < Moved::CHUNKS; c++) {
      const int i = this->row(c), k = this->step(c);
      Vector<R, V> x;
      UNROLL for (int e = 0; e < V; e++) x.v[e] = R(held[c].v[e]);
      if (Moved::ALONG) {
        UNROLL for (int e = 0; e < V; e++) tile[k + e][i] = x.v[e];
      } else {
        *reinterpret_cast<Vector<R, V>*>(&tile[k][i]) = x;
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
// 64 write V at once where y allows. That takes V registers in a row, which tiles of 128 and those of doubles lack:
// some would be spilled, or fewer blocks be resident.
template <typename W>
__device__ __forceinline__ void write(W* y, long long stride, int rows, int columns, const R (&acc)[TN][TM],
                                      int row, int column) {
  const bool room = SIDE == 64 && sizeof(R) < 8;
  const bool whole = room && (unsigned long long)y % sizeof(Vector<W, V>) == 0 && stride % V == 0;
  UNROLL for (int i = 0; i < TN; i++) {
    const int at = place<TN>(i, row) + i % V;
    if (at >= rows) break;
    UNROLL for (int j = 0; j < TM; j += V) {
      const int first = place<TM>(j, column);
      Vector<W, V> z;
      UNROLL for (int e = 0; e < V; e++) z.v[e] = W(acc[i][j + e]);
      if (whole) {  // an index into Vectors: of `y + at * stride`, NVRTC would not see that it is aligned
        if (first < columns) reinterpret_cast<Vector<W, V>*>(y)[at * (stride / V) + first / V] = z;
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

  const Part at(a, b, p);
  Moved<READ_A> from_a(at.a, p.a, at.rows);
  Moved<READ_B> from_b(at.b, p.b, at.columns);
  int left = at.left;

  // A warp is 4 × 8 threads, laid out so that two quarters of it read their 16 bytes of shared memory at once.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, WARPS = SIDE / TM / 8;
  const int row = warp / WARPS * 4 + lane / 16 * 2 + lane % 2, column = warp % WARPS * 8 + lane / 2 % 8;
  R acc[TN][TM];
  UNROLL for (int j = 0; j < TM; j++) {
    const int c = place<TM>(j, column) + j % V;
    acc[0][j] = bias && c < at.columns ? R(bias[at.column0 + c]) : R(0);
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
      Vector<R, V> ak[TN / V], bk[TM / V];
      UNROLL for (int i = 0; i < TN / V; i++)
        ak[i] = *reinterpret_cast<const Vector<R, V>*>(&as[now][k][place<TN>(i * V, row)]);
      UNROLL for (int j = 0; j < TM / V; j++)
        bk[j] = *reinterpret_cast<const Vector<R, V>*>(&bs[now][k][place<TM>(j * V, column)]);
      UNROLL for (int i = 0; i < TN; i++)
        UNROLL for (int j = 0; j < TM; j++) acc[i][j] += ak[i / V].v[i % V] * bk[j / V].v[j % V];
    }
    from_a.store(as[now ^ 1]);  // no thread still reads this half: all have passed the barrier below since
    from_b.store(bs[now ^ 1]);
    __syncthreads();
  }

  if (partial) {
    write(partial + at.corner(p), p.m, at.rows, at.columns, acc, row, column);
  } else {
    write(y + at.corner(p), p.m, at.rows, at.columns, acc, row, column);
  }
}

