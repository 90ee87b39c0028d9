// Matrix products on the CPU: y[i] = a[i] @ b[i] (+ bias), for batches of operands with any strides.
//
//   layout   a (n, k) and b (k, m) with any strides, batch dims too; y (batches, n, m) compact; bias (m,)
//   launch   a block for each tile of y, of each group of batches: see Product
//   equals   y = np.matmul(a, b); y += bias
//
// A tile is computed as in Goto & van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008). For each
// part of k, a panel of b, WIDTH columns wide, is packed: it then lies in the L1 cache as the multiplication reads it.
// All rows of the tile pass by it in strips of up to MR rows, whose MR × WIDTH sums stay in registers. a is packed too,
// strip by strip. What is used only a few times is not packed, but read where it lies. With few rows or columns, and
// both operands contiguous along k, the sums are dot products instead, so that both are read once, in order.
//
// Each element is one sum, in an order that depends on n, m, k and the strides alone: not on the tiles, the threads or
// the batch. Parts of k are summed by themselves, so that rounding grows with their length and number, not with k.

#if defined(__AVX512F__)
constexpr int BYTES = 64, MR = 12;  // of a vector; 12 × 2 sums, 2 vectors of b and one element of a in 32 registers
#elif defined(__AVX__)
constexpr int BYTES = 32, MR = 6;  // 12 sums, 2 and 1, in 16 registers
#else
constexpr int BYTES = 16, MR = 6;
#endif
constexpr int W = BYTES / sizeof(T), WIDTH = 2 * W;  // elements of a vector and of a row of a panel
constexpr int PART = 256;   // the most of k at a time: a panel of it is 32 KB at most
constexpr int PANELS = 32;  // of b, packed at a time: an L3 cache holds them
constexpr int ROWS = (192 << 10) / (PART * sizeof(T));  // of a, packed at a time: all of it fits an L2 cache
constexpr int RUN = 4096;   // the most of k at a time for dot products, which are W sums side by side
constexpr int FEW = 8;      // rows or columns that are computed as dot products
constexpr int REUSE = 4;    // strips of a, or panels of b, that make packing the other one pay
constexpr int LONG = 8;     // vectors of b that a single row is multiplied by at once

// Packed panels of b, then rows of a; pack() may touch a vector beyond them.
alignas(64) static thread_local T packed_operands[PANELS * PART * WIDTH + ROWS * PART + W];

typedef T Vector __attribute__((vector_size(BYTES)));
#define UNROLLED PRAGMA(GCC unroll 16)

// y (n, m) is cut into down × across tiles, the batches into groups; a block has a tile of all batches of a group.
// Strides count elements: of a along n and k, of b along m and k, of y and bias along n and m, and of all of them along
// the batch dims, of which the last varies fastest in y.
struct Product {
  long long n, m, k;
  long long down, across, groups, batches;
  long long dots;  // compute dot products?
  long long a[2], b[2], y[2], bias[2];
  long long batch_dims, batch[14], a_batch[14], b_batch[14];
};

static __forceinline__ Vector load(const T* x) {
  Vector v;
  std::memcpy(&v, x, sizeof v);
  return v;
}
static __forceinline__ void store(T* x, Vector v) { std::memcpy(x, &v, sizeof v); }
// `count` of them, and zeros.
__attribute__((noinline)) static Vector load(const T* x, long long count) {
  T padded[W] = {};
  for (int l = 0; l < W; l++) padded[l] = l < count ? x[l] : T(0);
  return load(padded);
}
static long long least(long long x, long long y) { return x < y ? x : y; }

// ------------------------------------------------------------------------------------------------------------ packing

// Lanes of x and y in turn, as one step of a transposition swaps them: those whose number has the bit D change places.
template <int D, std::size_t... L>
static __forceinline__ void exchange(Vector& x, Vector& y, std::index_sequence<L...>) {
  const Vector before = x;
#ifdef __clang__
  x = __builtin_shufflevector(before, y, (L & D ? W + (L ^ D) : L)...);
  y = __builtin_shufflevector(before, y, (L & D ? W + L : L ^ D)...);
#else
  typedef std::conditional_t<sizeof(T) == 4, int, long long> Lane;
  typedef Lane Lanes __attribute__((vector_size(BYTES)));
  x = __builtin_shuffle(before, y, Lanes{Lane(L & D ? W + (L ^ D) : L)...});
  y = __builtin_shuffle(before, y, Lanes{Lane(L & D ? W + L : L ^ D)...});
#endif
}

template <int D = W / 2>
static __forceinline__ void transpose(Vector (&x)[W]) {
  UNROLLED for (int i = 0; i < W; i++)
    if (!(i & D)) exchange<D>(x[i], x[i | D], std::make_index_sequence<W>());
  if constexpr (D > 1) transpose<D / 2>(x);
}

// x (k, count) by its strides across and along k, to `packed` (k, width); zeros follow where there are fewer columns.
// `beyond`: how many more columns may be read. It is written in chunks of W columns, and the last chunk of a row may
// reach into the next row. So chunks come from right to left, and their rows from the first on, which
// writes over that; at the end, up to W elements after `packed` are touched.
static void pack(T* __restrict__ packed, int width, const T* __restrict__ x, const long long* strides, long long k,
                 int count, long long beyond) {
  const long long across = strides[0], along = strides[1];
  for (int j = (width - 1) / W * W; j >= 0; j -= W) {
    T* to = packed + j;
    const T* from = x + j * across;
    const int left = count - j;
    long long i = 0;
    if (across == 1 && left + beyond >= W)
      for (; i < k; i++) store(to + i * width, load(from + i * along));
    else if (along == 1)
      for (; i + W <= k; i += W) {
        Vector square[W];
        UNROLLED for (int r = 0; r < W; r++) square[r] = r < left ? load(from + r * across + i) : Vector{};
        transpose(square);
        UNROLLED for (int r = 0; r < W; r++) store(to + (i + r) * width, square[r]);
      }
    for (; i < k; i++)
      for (int l = 0; l < W && j + l < width; l++) to[i * width + l] = l < left ? from[i * along + l * across] : T(0);
  }
}

// ----------------------------------------------------------------------------------------------------- multiplication

// Where the sums of a strip go: to y, or to what y has from earlier parts of k; with a bias after the last one.
struct Out {
  T* y;
  long long stride;
  const T* bias;  // or null
  bool add;
};

// The same for rows of sums whose last vector is not a whole one.
__attribute__((noinline)) static void finish(const T* sums, int rows, int width, const Out& out, int count) {
  for (int r = 0; r < rows; r++) {
    T* y = out.y + r * out.stride;
    for (int l = 0; l < count; l++) {
      T z = sums[r * width + l];
      if (out.add) z += y[l];
      if (out.bias) z += out.bias[l];
      y[l] = z;
    }
  }
}

// HIGH rows of a by the next `count` columns of b, which are WIDE vectors, the last of them perhaps not whole. If both
// are packed, the strides are constants, and the loop has no instructions but those of the sums.
template <int HIGH, int WIDE, bool PACKED>
static void multiply(const T* __restrict__ a, const long long* a_strides, const T* __restrict__ b, long long b_stride,
                     long long k, const Out& out, int count) {
  const long long down = PACKED ? 1 : a_strides[0], along = PACKED ? HIGH : a_strides[1];
  if (PACKED) b_stride = WIDTH;
  UNROLLED for (int r = 0; r < HIGH; r++) {  // y is needed at the end only, but then at once
    __builtin_prefetch(out.y + r * out.stride, 1);
    __builtin_prefetch(out.y + r * out.stride + (WIDE * W - 1), 1);
  }
  Vector sums[HIGH][WIDE];
  UNROLLED for (int r = 0; r < HIGH; r++)
    UNROLLED for (int c = 0; c < WIDE; c++) sums[r][c] = Vector{};
  PRAGMA(GCC unroll 4) for (long long i = 0; i < k; i++, a += along, b += b_stride) {
    Vector row[WIDE];
    UNROLLED for (int c = 0; c < WIDE; c++) row[c] = load(b + c * W);
    UNROLLED for (int r = 0; r < HIGH; r++)
      UNROLLED for (int c = 0; c < WIDE; c++) sums[r][c] += a[r * down] * row[c];
  }
  if (count < WIDE * W) {
    T all[HIGH * WIDE * W];
    UNROLLED for (int r = 0; r < HIGH; r++)
      UNROLLED for (int c = 0; c < WIDE; c++) store(all + (r * WIDE + c) * W, sums[r][c]);
    return finish(all, HIGH, WIDE * W, out, count);
  }
  UNROLLED for (int r = 0; r < HIGH; r++)
    UNROLLED for (int c = 0; c < WIDE; c++) {
      T* y = out.y + r * out.stride + c * W;
      if (out.add) sums[r][c] += load(y);
      if (out.bias) sums[r][c] += load(out.bias + c * W);
      store(y, sums[r][c]);
    }
}

typedef void (*Multiply)(const T*, const long long*, const T*, long long, long long, const Out&, int);
template <int WIDE, bool PACKED, std::size_t... R>
static Multiply chosen(int rows, std::index_sequence<R...>) {
  static constexpr Multiply all[] = {multiply<R + 1, WIDE, PACKED>...};
  return all[rows - 1];
}

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
            auto all = std::make_index_sequence<MR>();
            const bool both = pack_a && packed;
            (count <= W ? (both ? chosen<1, true>(high, all) : chosen<1, false>(high, all))
                        : (both ? chosen<2, true>(high, all) : chosen<2, false>(high, all)))(
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
