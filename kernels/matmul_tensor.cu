// Matrix products on tensor cores: y[i] = a[i] @ b[i] (+ bias), of halves, or of floats as TF32 or bfloat16; sums are
// floats.
//
//   layout   as in matmul.cu
//   launch   in a 1-D grid, THREADS for each tile of SIDE × SIDE of y, of each batch and each part of k
//   equals   y = np.matmul(a, b); y += bias, of float32 with a and b rounded to 10 bits after the point, or to 7
//
// READ_A and READ_B say how the threads read an operand, as in matmul.cu, with V for 16 bytes. An operand is copied to
// shared memory two steps ahead of the products, without conversion (by cp.async, if 16 bytes can be read together).
// ldmatrix transposes an operand whose rows are not contiguous along k. A step is LINE_BYTES of k, 64 or 128. 128 has
// fewer barriers, but then two blocks take most of a large GPU's shared memory, and reading element by element takes
// too many registers.
//
// A warp has a quarter of a tile. For a tile of 128 × 128 it reads 128 bytes of shared memory for 4096 FLOPs. A
// multiprocessor of an H100 reads 128 bytes in a cycle, and mma.sync does fewer than 4096 FLOPs in it.
#include "matmul.cuh"
#include "tensor.cuh"

constexpr int V = 16 / sizeof(T);             // elements moved at once
constexpr int STEP = LINE_BYTES / sizeof(T);  // of k
constexpr int STAGES = 3;                     // steps in shared memory: one that is multiplied, others on their way
constexpr int THREADS = 128, HALF = SIDE / 2, MI = HALF / 16, NI = HALF / 8;  // a warp has HALF × HALF

// A step of an operand in shared memory. ALONG: it has a line of STEP elements for each row; otherwise a line of SIDE
// elements for each k. The order of the pieces of V elements differs from line to line, so that pieces that are read,
// or written, together are in different banks.
template <int READ>
struct Tile {
  static constexpr bool ALONG = READ % 2;
  alignas(16) T of[SIDE * STEP];

  __device__ __forceinline__ static int place(int i, int k) {
    if (ALONG) return i * STEP + (k / V ^ (LINE_BYTES == 64 ? i / 2 % 4 : i % 8)) * V + k % V;
    return k * SIDE + (i / V ^ (sizeof(T) == 2 ? k % 8 : k % 4 * 2)) * V + i % V;
  }
  template <typename O>
  __device__ __forceinline__ void read(O& from, int left) {
    from.next(left, [&](int c, const T* p, int found) {
      T* const to = of + place(from.row(c), from.step(c));
      if (O::WHOLE) copy_async(to, p, found > 0);
      else *reinterpret_cast<Vector<T, V>*>(to) = from.gathered(p, found);
    });
  }
  template <bool RIGHT>
  __device__ __forceinline__ Fragment at(int row, int k) const {
    auto piece = [&](int k) {
      return fragment<RIGHT, ALONG, T>(row, k, [&](int i, int k) { return of + place(i, k); });
    };
    Fragment f = piece(k);
    if constexpr (TENSOR == 2) f = joined<RIGHT>(f, piece(k + K<T>));
    else if (sizeof(T) == 4) UNROLL for (int i = 0; i < 4; i++) f.r[i] = tf32(__uint_as_float(f.r[i]));
    return f;
  }
};

struct Stage {
  Tile<READ_A> a;
  Tile<READ_B> b;
};

// Writes a thread's part of a tile to y, whose rows are `stride` apart: two neighbours together if y is aligned.
template <typename W>
__device__ __forceinline__ void write(W* y, long long stride, int rows, int columns, const float (&acc)[2 * MI][2 * NI],
                                      int row0, int column0) {
  const bool pairs = (unsigned long long)y % sizeof(Vector<W, 2>) == 0 && stride % 2 == 0;
  UNROLL for (int i = 0; i < 2 * MI; i++) {
    const int row = row0 + i * 8;
    if (row >= rows) break;
    UNROLL for (int j = 0; j < 2 * NI; j += 2) {
      const int column = column0 + j * 4;
      if (pairs) {
        const Vector<W, 2> z = {{W(acc[i][j]), W(acc[i][j + 1])}};
        if (column < columns) reinterpret_cast<Vector<W, 2>*>(y)[row * (stride / 2) + column / 2] = z;
      } else {
        UNROLL for (int e = 0; e < 2; e++)
          if (column + e < columns) y[row * stride + column + e] = W(acc[i][j + e]);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, SIDE == 128 ? 2 : 4)
matmul(T* __restrict__ y, R* __restrict__ partial, const T* __restrict__ a, const T* __restrict__ b,
       const T* __restrict__ bias, Product p) {
  DYNAMIC_SHARED(Stage, stages);
  const Part at(a, b, p);
  Operand<READ_A, V, STEP, THREADS> from_a(at.a, p.a, at.rows);
  Operand<READ_B, V, STEP, THREADS> from_b(at.b, p.b, at.columns);
  int left = at.left, to_read = at.left;
  auto read = [&](int stage) {
    if (to_read > 0) {
      stages[stage].a.read(from_a, to_read);
      stages[stage].b.read(from_b, to_read);
      to_read -= STEP;
    }
    commit_copies();  // of nothing, after the last step, so that as many groups are on their way as ever
  };

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / 2 * HALF, warp_column = warp % 2 * HALF;
  const int row = warp_row + lane / 4, column = warp_column + lane % 4 * 2;
  float acc[2 * MI][2 * NI];
  UNROLL for (int j = 0; j < 2 * NI; j++) {
    const int c = column + j / 2 * 8 + j % 2;
    acc[0][j] = bias && c < at.columns ? float(bias[at.column0 + c]) : 0.0f;
    UNROLL for (int i = 1; i < 2 * MI; i++) acc[i][j] = acc[0][j];
  }

  for (int stage = 0; stage < STAGES - 1; stage++) read(stage);
  for (int now = 0; left > 0; left -= STEP) {
    wait_for_copies<STAGES - 2>();
    __syncthreads();
    read(now == 0 ? STAGES - 1 : now - 1);  // no thread still multiplies this one: all have passed the barrier since
    UNROLL for (int k = 0; k < STEP; k += K<Factor>) {
      Fragment ak[MI], bk[NI / 2];
      UNROLL for (int i = 0; i < MI; i++) ak[i] = stages[now].a.template at<false>(warp_row + i * 16, k);
      UNROLL for (int j = 0; j < NI / 2; j++) bk[j] = stages[now].b.template at<true>(warp_column + j * 16, k);
      UNROLL for (int i = 0; i < MI; i++)
        UNROLL for (int j = 0; j < NI; j++)
          multiply_add(acc[2 * i][2 * j], acc[2 * i][2 * j + 1], acc[2 * i + 1][2 * j], acc[2 * i + 1][2 * j + 1],
                       ak[i].r, bk[j / 2].r[j % 2 * 2], bk[j / 2].r[j % 2 * 2 + 1], Factor());
    }
    now = now == STAGES - 1 ? 0 : now + 1;
  }

  if (partial) {
    write(partial + at.corner(p), p.m, at.rows, at.columns, acc, row, column);
  } else {
    write(y + at.corner(p), p.m, at.rows, at.columns, acc, row, column);
  }
}
