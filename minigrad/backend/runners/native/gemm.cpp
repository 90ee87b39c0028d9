// Matrix products on the CPU: y[i] = a[i] @ b[i] (+ bias), for batches of operands with any strides.
//
//   layout   a (n, k) and b (k, m) with any strides, batch dims too; y (batches, n, m) compact; bias (m,)
//   launch   a block for each tile of y, of each group of batches: see Product
//   equals   y = np.matmul(a, b); y += bias
//
// A tile is computed as in Goto & van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008): for each
// part of k, a panel of b, WIDTH columns wide, is packed so that it lies in the L1 cache as the multiplication reads it.
// All rows of the tile then pass by it in strips, each of up to MR rows, whose MR × WIDTH sums stay in registers. Where
// there are few rows, packing does not pay and b is read where it lies; a always is. With few rows or columns, and both
// operands contiguous along k, the sums are dot products instead, so that both are read once, in order.
//
// Each element is one sum, in an order that depends on n, m, k and the strides alone: not on the tiles, the threads or
// the batch. Parts of k are summed by themselves first, so that rounding grows with their length and number, not with k.

#if defined(__AVX512F__)
constexpr int BYTES = 64, MR = 12;  // of a vector; 12 × 2 sums, 2 vectors of b and one element of a in 32 registers
#elif defined(__AVX__)
constexpr int BYTES = 32, MR = 6;  // 12 sums, 2 and 1, in 16 registers
#else
constexpr int BYTES = 16, MR = 6;
#endif
constexpr int W = BYTES / sizeof(T), COLS = 2, WIDTH = COLS * W;  // elements of a vector, vectors of a panel
constexpr int PART = 256;     // the most of k at a time: a panel of it is 32 KB at most
constexpr int RUN = 4096;     // the same for dot products, which are W sums side by side
constexpr int FEW = 8;        // rows or columns that are computed as dot products
constexpr int REUSE = 3;      // strips that make packing pay

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

// b's next `count` columns, k of each, to `panel` (k, WIDTH); zeros follow where there are fewer columns.
static void pack(T* __restrict__ panel, const T* __restrict__ b, const long long* strides, long long k, int count) {
  const long long across = strides[0], along = strides[1];
  if (across == 1) {
    for (long long i = 0; i < k; i++)
      UNROLLED for (int j = 0; j < WIDTH; j += W)
        store(panel + i * WIDTH + j, count >= j + W ? load(b + i * along + j) : load(b + i * along + j, count - j));
    return;
  }
  long long done = 0;
  if (along == 1)
    for (; done + W <= k; done += W)
      for (int j = 0; j < WIDTH; j += W) {
        Vector x[W];
        UNROLLED for (int i = 0; i < W; i++) x[i] = j + i < count ? load(b + (j + i) * across + done) : Vector{};
        transpose(x);
        UNROLLED for (int i = 0; i < W; i++) store(panel + (done + i) * WIDTH + j, x[i]);
      }
  for (; done < k; done++)
    for (int j = 0; j < WIDTH; j++) panel[done * WIDTH + j] = j < count ? b[done * along + j * across] : T(0);
}

// ----------------------------------------------------------------------------------------------------- multiplication

// Where the sums of a strip go: to y, or to what y has from earlier parts of k; with a bias after the last one.
struct Out {
  T* y;
  long long stride;
  const T* bias;  // or null
  bool add;
};

// The same where the last vector of each row is not a whole one.
__attribute__((noinline)) static void finish(const Vector* sums, int rows, int cols, const Out& out, int count) {
  for (int r = 0; r < rows; r++) {
    T z[WIDTH];
    for (int c = 0; c < cols; c++) store(z + c * W, sums[r * cols + c]);
    T* y = out.y + r * out.stride;
    for (int l = 0; l < count; l++) {
      if (out.add) z[l] += y[l];
      if (out.bias) z[l] += out.bias[l];
      y[l] = z[l];
    }
  }
}

// ROWS rows of a by the next `count` columns of b, of which there are (cols - 1) W + 1 to cols W.
template <int ROWS, int cols>
static void multiply(const T* __restrict__ a, const long long* a_strides, const T* __restrict__ b, long long b_stride,
                     long long k, const Out& out, int count) {
  const long long down = a_strides[0], along = a_strides[1];
  Vector sums[ROWS][cols] = {};
  for (long long i = 0; i < k; i++, a += along, b += b_stride) {
    Vector row[cols];
    UNROLLED for (int c = 0; c < cols; c++) row[c] = load(b + c * W);
    UNROLLED for (int r = 0; r < ROWS; r++)
      UNROLLED for (int c = 0; c < cols; c++) sums[r][c] += a[r * down] * row[c];
  }
  if (count < cols * W) return finish((const Vector*)sums, ROWS, cols, out, count);
  UNROLLED for (int r = 0; r < ROWS; r++)
    UNROLLED for (int c = 0; c < cols; c++) {
      T* y = out.y + r * out.stride + c * W;
      if (out.add) sums[r][c] += load(y);
      if (out.bias) sums[r][c] += load(out.bias + c * W);
      store(y, sums[r][c]);
    }
}

typedef void (*Multiply)(const T*, const long long*, const T*, long long, long long, const Out&, int);
template <int cols, std::size_t... R>
static Multiply chosen(int rows, std::index_sequence<R...>) {
  static constexpr Multiply all[] = {multiply<R + 1, cols>...};
  return all[rows - 1];
}

// Columns first to last of rows first to last, of one product.
static void tile(T* y, const T* a, const T* b, const T* bias, const Product& p, long long row0, long long row1,
                 long long column0, long long column1) {
  DYNAMIC_SHARED(T, panel);
  const long long rows = row1 - row0, strips = (rows + MR - 1) / MR, parts = p.k ? (p.k + PART - 1) / PART : 1;
  for (long long part = 0; part < parts; part++) {
    const long long k0 = p.k * part / parts, k = p.k * (part + 1) / parts - k0;
    for (long long j = column0; j < column1; j += WIDTH) {
      const int count = least(column1 - j, WIDTH), cols = (count + W - 1) / W;
      const T* from = b + j * p.b[0] + k0 * p.b[1];
      long long stride = p.b[1];
      if (p.b[0] != 1 || count % W || strips >= REUSE) {
        pack(panel, from, p.b, k, count);
        from = panel, stride = WIDTH;
      }
      for (long long s = 0; s < strips; s++) {
        const long long i = row0 + rows * s / strips;
        const int high = row0 + rows * (s + 1) / strips - i;
        const Out out = {y + i * p.m + j, p.m, bias && part == parts - 1 ? bias + j : nullptr, part > 0};
        auto all = std::make_index_sequence<MR>();
        (cols == 1 ? chosen<1>(high, all) : chosen<2>(high, all))(a + i * p.a[0] + k0 * p.a[1], p.a, from, stride, k, out, count);
      }
    }
  }
}

// ------------------------------------------------------------------------------------------------------- dot products

__attribute__((noinline)) static T sum_of(const Vector& v) {
  T lanes[W];
  store(lanes, v);
  UNROLLED for (int half = W / 2; half; half /= 2)
    for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];
  return lanes[0];
}

template <int ROWS, int cols>
static void dot(T* y, const T* a, const T* b, const T* bias, const Product& p) {
  for (long long k0 = 0; k0 == 0 || k0 < p.k; k0 += RUN) {
    const long long k1 = least(p.k, k0 + RUN);
    Vector sums[ROWS][cols] = {};
    auto add = [&](auto read) {
      Vector column[cols];
      UNROLLED for (int c = 0; c < cols; c++) column[c] = read(b + c * p.b[0]);
      UNROLLED for (int r = 0; r < ROWS; r++) {
        const Vector row = read(a + r * p.a[0]);
        UNROLLED for (int c = 0; c < cols; c++) sums[r][c] += row * column[c];
      }
    };
    long long i = k0;
    for (; i + W <= k1; i += W) add([=](const T* x) { return load(x + i); });
    if (i < k1) add([=](const T* x) { return load(x + i, k1 - i); });
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < cols; c++) {
        T& z = y[r * p.y[0] + c * p.y[1]];
        z = k0 ? z + sum_of(sums[r][c]) : sum_of(sums[r][c]);
        if (bias && k1 == p.k) z += bias[r * p.bias[0] + c * p.bias[1]];
      }
  }
}

template <int ROWS>
static void dots(T* y, const T* a, const T* b, const T* bias, const Product& p, long long column0, long long column1) {
  constexpr int at_once = ROWS == 1 ? 8 : ROWS < 5 ? 4 : 2;
  auto at = [=](auto* x, long long steps) { return x ? x + steps : nullptr; };
  long long j = column0;
  for (; j + at_once <= column1; j += at_once)
    dot<ROWS, at_once>(y + j * p.y[1], a, b + j * p.b[0], at(bias, j * p.bias[1]), p);
  for (; j < column1; j++) dot<ROWS, 1>(y + j * p.y[1], a, b + j * p.b[0], at(bias, j * p.bias[1]), p);
}

typedef void (*Dots)(T*, const T*, const T*, const T*, const Product&, long long, long long);
template <std::size_t... R>
static Dots dots_of(int rows, std::index_sequence<R...>) {
  static constexpr Dots all[] = {dots<R + 1>...};
  return all[rows - 1];
}

// --------------------------------------------------------------------------------------------------------------- entry

extern "C" __global__ void gemm(T* __restrict__ y, const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ bias, Product p) {
  const long long tiles = p.down * p.across, group = blockIdx.x / tiles;
  const long long below = blockIdx.x % tiles / p.across, right = blockIdx.x % p.across;
  const long long row0 = p.n * below / p.down, row1 = p.n * (below + 1) / p.down;
  const long long panels = (p.m + WIDTH - 1) / WIDTH;
  const long long column0 = panels * right / p.across * WIDTH, column1 = least(p.m, panels * (right + 1) / p.across * WIDTH);
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
