// Matrix products on the CPU: y[i] = a[i] @ b[i] (+ bias), for batches of operands with any strides.
//
//   layout   a (n, k) and b (k, m) with any strides, batch dims too; y (batches, n, m) compact; bias (m,)
//   launch   a block for each tile of y, of each group of batches: see Product
//   equals   y = np.matmul(a, b); y += bias
//
// A tile is computed as in Goto & van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008). For each
// part of k, a panel of b, WIDTH columns wide, is packed: it then lies in the L1 cache in the order in which the
// multiplication reads it. All rows of the tile are multiplied by it in strips of up to MR rows, whose MR × WIDTH sums
// stay in registers. a is packed too, strip by strip. An operand that is used only a few times is not packed, but read
// where it lies. If there are few rows or columns, and both operands are contiguous along k, the sums are computed as
// dot products, so that both are read once, in order.
//
// The order of the additions for an element depends on n, m, k and the strides alone: not on the tiles, the threads or
// the batch. The parts of k are summed separately, so that rounding grows with their length and number, not with k.

#include "multiply.h"

constexpr int PART = 256;   // the largest part of k: a panel is 32 KB at most
constexpr int PANELS = 32;  // panels of b that are packed at a time: they fit an L3 cache
constexpr int ROWS = (192 << 10) / (PART * sizeof(T));  // rows of a that are packed at a time: they fit an L2 cache
constexpr int RUN = 4096;   // the largest part of k for dot products, which are W sums side by side
constexpr int FEW = 8;      // the most rows or columns that are computed as dot products
constexpr int REUSE = 4;    // the fewest strips of a, or panels of b, for which packing the other operand pays
constexpr int LONG = 8;     // vectors of b by which a single row is multiplied at once

// Packed panels of b, then rows of a; pack() may write one vector beyond them.
alignas(64) static thread_local T packed_operands[PANELS * PART * WIDTH + ROWS * PART + W];

// y (n, m) is cut into down × across tiles, the batches into groups; a block has a tile of all batches of a group.
// Strides count elements: of a along n and k, of b along m and k, of y and bias along n and m, and of all of them along
// the batch dims, of which the last varies fastest in y.
// args  dims = p.batch_dims; batch = p.batch[:dims]; y (p.batches, p.n, p.m); bias? (p.n, p.m) at p.bias;
//       a (*batch, p.n, p.k) at (*p.a_batch[:dims], *p.a); b (*batch, p.m, p.k) at (*p.b_batch[:dims], *p.b)
struct Product {
  long long n, m, k;
  long long down, across, groups, batches;
  long long dots;  // true if dot products are computed
  long long a[2], b[2], y[2], bias[2];
  long long batch_dims, batch[14], a_batch[14], b_batch[14];
};

// Rows row0 to row1 and columns column0 to column1 of one product.
static void tile(T* y, const T* a, const T* b, const T* bias, const Product& p, long long row0, long long row1,
                 long long column0, long long column1) {
  T* packed_b = packed_operands;
  asm("" : "+r"(packed_b));  // or the compiler would ask for this thread's address again at every use
  T* packed_a = packed_b + PANELS * PART * WIDTH;
  const long long parts = p.k ? (p.k + PART - 1) / PART : 1, blocks = (row1 - row0 + ROWS - 1) / ROWS;
  if (p.n == 1 && p.b[0] == 1)
    for (; column0 + LONG * W <= column1; column0 += LONG * W)
      for (long long part = 0; part < parts; part++) {
        const long long k0 = p.k * part / parts, k = p.k * (part + 1) / parts - k0;
        const Out out = {y + column0, p.m, bias && part == parts - 1 ? bias + column0 : nullptr, part > 0};
        multiply<1, LONG, false>(a + k0 * p.a[1], p.a, b + column0 + k0 * p.b[1], p.b[1], k, out, LONG * W);
      }
  const bool pack_b = p.b[0] != 1 || row1 - row0 > (REUSE - 1) * MR;
  for (long long part = 0; part < parts; part++) {
    const long long k0 = p.k * part / parts, k = p.k * (part + 1) / parts - k0;
    for (long long j0 = column0; j0 < column1; j0 += PANELS * WIDTH) {
      const long long j1 = least(column1, j0 + PANELS * WIDTH);
      const bool pack_a = j1 - j0 > (REUSE - 1) * WIDTH;
      for (long long block = 0; block < blocks; block++) {
        const long long i0 = row0 + (row1 - row0) * block / blocks;
        const long long rows = row0 + (row1 - row0) * (block + 1) / blocks - i0;
        const long long strips = (rows + MR - 1) / MR;
        const T* from_b = packed_b;
        for (long long j = j0; j < j1; j += WIDTH, from_b += PART * WIDTH) {
          const int count = least(column1 - j, WIDTH);
          const T* x = b + j * p.b[0] + k0 * p.b[1];
          const bool packed = pack_b || count % W;
          if (packed && block == 0) pack((T*)from_b, WIDTH, x, p.b, k, count, 0);
          for (long long s = 0; s < strips; s++) {
            const long long first = rows * s / strips, i = i0 + first;
            const int high = rows * (s + 1) / strips - first;
            const T* from_a = a + i * p.a[0] + k0 * p.a[1];
            const long long steps[] = {1, high};
            if (pack_a) {
              if (j == j0) pack(packed_a + first * k, high, from_a, p.a, k, high, p.n - i - high);
              from_a = packed_a + first * k;
            }
            const Out out = {y + i * p.m + j, p.m, bias && part == parts - 1 ? bias + j : nullptr, part > 0};
            (pack_a && packed ? chosen<true>(high, count) : chosen<false>(high, count))(
                from_a, pack_a ? steps : p.a, packed ? from_b : x, packed ? WIDTH : p.b[1], k, out, count);
          }
        }
      }
    }
  }
}

// ------------------------------------------------------------------------------------------------------- dot products

// The sums of the lanes of W vectors, side by side: added up all at once, after a transposition.
static __forceinline__ Vector sums_of(Vector (&x)[W]) {
  transpose(x);
  UNROLLED for (int half = W / 2; half; half /= 2)
    UNROLLED for (int l = 0; l < half; l++) x[l] += x[l + half];
  return x[0];
}

template <int HIGH, int WIDE>
static void dot(T* y, const T* a, const T* b, const T* bias, const Product& p) {
  for (long long k0 = 0; k0 == 0 || k0 < p.k; k0 += RUN) {
    const long long k1 = least(p.k, k0 + RUN);
    Vector sums[HIGH][WIDE] = {};
    auto add = [&](auto read) {
      Vector column[WIDE];
      UNROLLED for (int c = 0; c < WIDE; c++) column[c] = read(b + c * p.b[0]);
      UNROLLED for (int r = 0; r < HIGH; r++) {
        const Vector row = read(a + r * p.a[0]);
        UNROLLED for (int c = 0; c < WIDE; c++) sums[r][c] += row * column[c];
      }
    };
    long long i = k0;
    for (; i + W <= k1; i += W) add([=](const T* x) { return load(x + i); });
    if (i < k1) add([=](const T* x) { return load(x + i, k1 - i); });
    constexpr int count = HIGH * WIDE;
    T totals[(count + W - 1) / W * W];
    UNROLLED for (int first = 0; first < count; first += W) {
      Vector some[W] = {};
      UNROLLED for (int l = 0; l < W && first + l < count; l++) some[l] = sums[(first + l) / WIDE][(first + l) % WIDE];
      store(totals + first, sums_of(some));
    }
    for (int r = 0; r < HIGH; r++)
      for (int c = 0; c < WIDE; c++) {
        T& z = y[r * p.y[0] + c * p.y[1]];
        const T total = totals[r * WIDE + c];
        z = k0 ? z + total : total;
        if (bias && k1 == p.k) z += bias[r * p.bias[0] + c * p.bias[1]];
      }
  }
}

template <int HIGH>
static void dots(T* y, const T* a, const T* b, const T* bias, const Product& p, long long column0, long long column1) {
  constexpr int at_once = W > HIGH ? W / HIGH : 1;
  auto at = [=](auto* x, long long steps) { return x ? x + steps : nullptr; };
  long long j = column0;
  for (; j + at_once <= column1; j += at_once)
    dot<HIGH, at_once>(y + j * p.y[1], a, b + j * p.b[0], at(bias, j * p.bias[1]), p);
  for (; j < column1; j++) dot<HIGH, 1>(y + j * p.y[1], a, b + j * p.b[0], at(bias, j * p.bias[1]), p);
}

typedef void (*Dots)(T*, const T*, const T*, const T*, const Product&, long long, long long);
template <std::size_t... R>
static Dots dots_of(int rows, std::index_sequence<R...>) {
  static constexpr Dots all[] = {dots<R + 1>...};
  return all[rows - 1];
}

// --------------------------------------------------------------------------------------------------------------- entry

extern "C" __global__ void gemm(T* __restrict__ y, const T* __restrict__ a, const T* __restrict__ b,
                                const T* __restrict__ bias, Product p) {
  const long long tiles = p.down * p.across, group = blockIdx.x / tiles;
  const long long below = blockIdx.x % tiles / p.across, right = blockIdx.x % p.across;
  const long long row0 = p.n * below / p.down, row1 = p.n * (below + 1) / p.down;
  const long long panels = (p.m + WIDTH - 1) / WIDTH;
  const long long column0 = panels * right / p.across * WIDTH;
  const long long column1 = least(p.m, panels * (right + 1) / p.across * WIDTH);
  for (long long i = p.batches * group / p.groups; i < p.batches * (group + 1) / p.groups; i++) {
    const T *a_i = a, *b_i = b;
    long long rest = i;
    for (int d = p.batch_dims - 1; d >= 0; d--) {
      a_i += rest % p.batch[d] * p.a_batch[d];
      b_i += rest % p.batch[d] * p.b_batch[d];
      rest /= p.batch[d];
    }
    T* y_i = y + i * p.n * p.m;
    if (p.dots)
      dots_of(p.n, std::make_index_sequence<FEW>())(y_i, a_i, b_i, bias, p, column0, column1);
    else
      tile(y_i, a_i, b_i, bias, p, row0, row1, column0, column1);
  }
}
