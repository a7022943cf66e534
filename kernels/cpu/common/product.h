// Products of dense matrices by torch's BLAS, for the registration half of a kernel file.
//
// A product is cut into tiles that depend on the problem only, and each runs on one thread: a BLAS that uses several
// may sum in another order for each number of threads. MKL does, and cuts a sum for all the threads that it may use
// even where it gets only one. Tiles of 128 rows and more lose nothing against one large product, and what else has to
// be done to a tile is done while it is in the cache.
#pragma once

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "bfloat16.h"
#include "isa.h"
#include "parallel.h"

// A function of MKL, null where torch has none: sets the number of threads for the calling thread alone (0: the number
// that holds for all) and returns the one before.
extern "C" int MKL_Set_Num_Threads_Local(int) __attribute__((weak));

// The products of torch's BLAS, null where it shows none. They compute in float32 whatever precision torch is set to,
// which its own product looks up. The numbers of 64 bits serve a BLAS that reads 32 as well, as the lower half is
// first.
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
extern "C" {
void sgemm_(const char*, const char*, const int64_t*, const int64_t*, const int64_t*, const float*, const float*,
            const int64_t*, const float*, const int64_t*, const float*, float*, const int64_t*) __attribute__((weak));
void dgemm_(const char*, const char*, const int64_t*, const int64_t*, const int64_t*, const double*, const double*,
            const int64_t*, const double*, const int64_t*, const double*, double*, const int64_t*)
    __attribute__((weak));
}
#endif

namespace seegera {

// --- Single products -------------------------------------------------------------------------------------------------

// A matrix in memory that somebody else owns. Strides in numbers; one of them is 1.
template <typename T>
struct Matrix {
    T* data;
    int64_t rows;
    int64_t columns;
    int64_t row_stride;
    int64_t column_stride;

    Matrix part(int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) const {
        return {data + row_begin * row_stride + column_begin * column_stride, row_end - row_begin,
                column_end - column_begin, row_stride, column_stride};
    }
    Matrix row_range(int64_t begin, int64_t end) const { return part(begin, end, 0, columns); }
    Matrix flipped() const { return {data, columns, rows, column_stride, row_stride}; }
};

template <typename T>
Matrix<const T> as_const(const Matrix<T>& m) {
    return {m.data, m.rows, m.columns, m.row_stride, m.column_stride};
}

template <typename T>
Matrix<T> contiguous_matrix(T* data, int64_t rows, int64_t columns) {
    return {data, rows, columns, columns, 1};
}

// Memory of one thread.
template <typename T>
class Scratch {
 public:
    explicit Scratch(int64_t size) : memory_(new T[size + kLine]) {
        const auto beyond = static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory_.get()) / sizeof(T)) % kLine;
        begin_ = memory_.get() + (beyond == 0 ? 0 : kLine - beyond);
    }
    T* get() const { return begin_; }

 private:
    static constexpr int64_t kLine = kLineBytes / sizeof(T);
    std::unique_ptr<T[]> memory_;
    T* begin_;
};

// How exactly products of float32 matrices are computed, by torch's names and in the order of
// seegera_fast/precision.py: in float32; as three products of two bfloat16 for each number; as one of bfloat16. Where
// this machine does not multiply bfloat16 faster, a precision is as the one before it.
enum class Precision : int64_t { highest, high, medium };

// While this object lives, the products of the calling thread have this precision, and those of on_every_thread.
class ProductsAt {
 public:
    explicit ProductsAt(Precision precision) : before_(current()) { current() = precision; }
    explicit ProductsAt(int64_t precision) : ProductsAt(static_cast<Precision>(precision)) {}
    ProductsAt(const ProductsAt&) = delete;
    ProductsAt& operator=(const ProductsAt&) = delete;
    ~ProductsAt() { current() = before_; }
    static Precision& current() {
        thread_local Precision precision = Precision::highest;
        return precision;
    }

 private:
    Precision before_;
};

template <typename T>
torch::stable::Tensor as_tensor(const Matrix<T>& m) {
    constexpr auto type =
        sizeof(T) == sizeof(float) ? torch::headeronly::ScalarType::Float : torch::headeronly::ScalarType::Double;
    return torch::stable::from_blob(const_cast<std::remove_const_t<T>*>(m.data), {m.rows, m.columns},
                                    {m.row_stride, m.column_stride},
                                    torch::stable::Device(torch::headeronly::DeviceType::CPU), type);
}

// One side of a product in bfloat16, for MKL.
class RoundedSide {
 public:
    void set(const Matrix<const float>& m, bool with_rest) {
        flipped_ = m.column_stride != 1;
        const Matrix<const float> lines = flipped_ ? m.flipped() : m;
        const int64_t size = lines.rows * lines.columns;
        numbers_.resize(with_rest ? 2 * size : size);
        stride_ = static_cast<int>(std::max<int64_t>(1, lines.columns));
        rest_ = with_rest ? numbers_.data() + size : nullptr;
        SEEGERA_CHOOSE(round_lines)(lines.data, lines.rows, lines.columns, lines.row_stride, numbers_.data(), rest_);
    }
    const uint16_t* nearest() const { return numbers_.data(); }
    const uint16_t* rest() const { return rest_; }
    int stride() const { return stride_; }
    int order() const { return flipped_ ? kTransposed : kAsIs; }

 private:
    static constexpr int kAsIs = 111, kTransposed = 112;  // of CBLAS

    std::vector<uint16_t> numbers_;
    uint16_t* rest_ = nullptr;
    int stride_ = 1;
    bool flipped_ = false;
};

// out = beta out + alpha left @ right by MKL, in one product or, for `high`, in three.
inline void multiply_by_mkl(const Matrix<float>& out, const Matrix<const float>& left, const Matrix<const float>& right,
                            double beta, double alpha, bool high) {
    constexpr int by_rows = 101;
    constexpr int64_t most_depth = 2048;  // what is rounded at a time stays in the cache
    thread_local RoundedSide first, second;
    double factor = beta;
    for (int64_t begin = 0; begin < left.columns || begin == 0; begin += most_depth) {
        const int64_t end = std::min(left.columns, begin + most_depth);
        first.set(left.part(0, left.rows, begin, end), high);
        second.set(right.row_range(begin, end), high);
        const auto add = [&](const uint16_t* a, const uint16_t* b) {
            cblas_gemm_bf16bf16f32(by_rows, first.order(), second.order(), static_cast<int>(out.rows),
                                   static_cast<int>(out.columns), static_cast<int>(end - begin),
                                   static_cast<float>(alpha), a, first.stride(), b, second.stride(),
                                   static_cast<float>(factor), out.data, static_cast<int>(out.row_stride));
            factor = 1;
        };
        add(first.nearest(), second.nearest());
        if (high) {
            add(first.nearest(), second.rest());
            add(first.rest(), second.nearest());
        }
    }
}

// Whether the product was computed in bfloat16.
inline bool multiply_rounded(const Matrix<float>& out, const Matrix<const float>& left,
                             const Matrix<const float>& right, double beta, double alpha) {
    const Precision precision = ProductsAt::current();
    if (precision == Precision::highest || out.rows == 0 || out.columns == 0) {
        return false;
    }
    if (bfloat16() == Bfloat16::mkl) {
        multiply_by_mkl(out, left, right, beta, alpha, precision == Precision::high);
        return true;
    }
    if (bfloat16() == Bfloat16::none || precision == Precision::high || !(beta == 0 || beta == 1)) {
        return false;
    }
    thread_local const Scratch<uint32_t> left_pairs(kLeftPairs), right_pairs(kRightPairs);
    SEEGERA_CHOOSE(multiply_bfloat16)
    ({out.rows,
      left.columns,
      out.columns,
      {left.data, left.row_stride, left.column_stride},
      {right.data, right.row_stride, right.column_stride},
      static_cast<float>(alpha),
      beta == 1,
      out.data,
      out.row_stride},
     left_pairs.get(), right_pairs.get());
    return true;
}

// One side of a product, as BLAS takes it: by columns, where a matrix by rows is its transpose.
template <typename T>
struct BlasSide {
    const T* data;
    char order;
    int64_t stride;

    explicit BlasSide(const Matrix<const T>& m)
        : data(m.data),
          order(m.column_stride == 1 ? 'N' : 'T'),
          stride(std::max({int64_t{1}, m.column_stride == 1 ? m.columns : m.rows,
                           m.column_stride == 1 ? m.row_stride : m.column_stride})) {}
};

// Whether the product was computed: torch's BLAS can be called.
template <typename T>
bool multiply_by_blas(const Matrix<T>& out, const Matrix<const T>& left, const Matrix<const T>& right, double beta,
                      double alpha) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const BlasSide<T> a(left), b(right);
    const T alpha_t = static_cast<T>(alpha), beta_t = static_cast<T>(beta);
    const int64_t stride = std::max(out.row_stride, std::max<int64_t>(1, out.columns));
    // out^T = right^T left^T
    if constexpr (sizeof(T) == sizeof(float)) {
        if (sgemm_ != nullptr) {
            sgemm_(&b.order, &a.order, &out.columns, &out.rows, &left.columns, &alpha_t, b.data, &b.stride, a.data,
                   &a.stride, &beta_t, out.data, &stride);
            return true;
        }
    } else if (dgemm_ != nullptr) {
        dgemm_(&b.order, &a.order, &out.columns, &out.rows, &left.columns, &alpha_t, b.data, &b.stride, a.data,
               &a.stride, &beta_t, out.data, &stride);
        return true;
    }
#endif
    return false;
}

// out = beta out + alpha left @ right; out is not read where beta is 0.
template <typename T>
void multiply(const Matrix<T>& out, const Matrix<const T>& left, const Matrix<const T>& right, double beta = 0,
              double alpha = 1) {
    if constexpr (sizeof(T) == sizeof(float)) {
        if (multiply_rounded(out, left, right, beta, alpha)) {
            return;
        }
    }
    if (multiply_by_blas(out, left, right, beta, alpha)) {
        return;
    }
    const torch::stable::Tensor to = as_tensor(out), a = as_tensor(left), b = as_tensor(right);
    if (beta == 0 && alpha == 1) {
        TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(to.get(), a.get(), b.get()));
    } else {
        TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(to.get(), to.get(), a.get(), b.get(), beta, alpha));
    }
}

// While this object lives, MKL uses one thread for products of the calling thread.
class OneThreadOfMkl {
 public:
    OneThreadOfMkl() : before_(MKL_Set_Num_Threads_Local ? MKL_Set_Num_Threads_Local(1) : 0) {}
    OneThreadOfMkl(const OneThreadOfMkl&) = delete;
    OneThreadOfMkl& operator=(const OneThreadOfMkl&) = delete;
    ~OneThreadOfMkl() {
        if (MKL_Set_Num_Threads_Local) {
            MKL_Set_Num_Threads_Local(before_);
        }
    }

 private:
    int before_;
};

// on_threads with all threads. Products inside run on one thread, so that their bits do not depend on the number of
// threads. This holds for a single task too, which for_each_task runs in the calling thread.
template <typename Work>
void on_every_thread(const Work& work) {
    const Precision precision = ProductsAt::current();
    on_threads(num_threads(), [&](const auto& next) {
        const OneThreadOfMkl one;
        const ProductsAt same(precision);
        work(next);
    });
}

// for_each_task for tasks with products in them.
template <typename Run>
void for_each_product(int64_t count, const Run& run) {
    on_every_thread([&](const auto& next) {
        for (int64_t task = next(); task < count; task = next()) {
            run(task);
        }
    });
}

// --- Products in tiles -----------------------------------------------------------------------------------------------

// The left side of a product: lines in memory, or lines that `fill` makes, a tile at a time, and that are never stored.
template <typename T>
struct Lines {
    Matrix<const T> memory{};  // where fill is set, only its numbers of rows and columns count
    // (line_begin, line_end, column_begin, column_end, out, out_stride)
    std::function<void(int64_t, int64_t, int64_t, int64_t, T*, int64_t)> fill;

    int64_t count() const { return memory.rows; }
    int64_t width() const { return memory.columns; }
};

// One term of a sum of products.
template <typename T>
struct Term {
    Lines<T> left;
    Matrix<const T> right;
};

// Lines of a tile: BLAS packs the right side anew for each.
constexpr int64_t kTileLines = 256;
// Columns of what `fill` makes at a time: of float32, a tile is half a second-level cache.
constexpr int64_t kTileColumns = 512;

// [0, lines) in tiles of at most kTileLines: as many as keep 2 or 4 threads equally busy, where there is work for them.
class LineTiles {
 public:
    explicit LineTiles(int64_t lines)
        : lines_(lines), units_((lines + kUnit - 1) / kUnit), count_((lines + kTileLines - 1) / kTileLines) {
        if (lines >= kTileLines) {
            count_ = (count_ + 3) / 4 * 4;
        }
    }
    int64_t count() const { return count_; }
    int64_t begin(int64_t tile) const { return std::min(lines_, tile * units_ / count_ * kUnit); }

 private:
    int64_t lines_;
    int64_t units_;
    int64_t count_;
};

// Columns of out in one task.
constexpr int64_t kTaskColumns = 1024;

// out = the sum of the terms, or out += it. after(line_begin, line_end) runs on lines that are done, while they are in
// the cache; their columns are then complete.
template <typename T>
void multiply_lines(const Matrix<T>& out, const std::vector<Term<T>>& terms, bool add,
                    const std::function<void(int64_t, int64_t)>& after = nullptr) {
    int64_t filled = 0;
    for (const Term<T>& term : terms) {
        if (term.left.fill) {
            filled = std::max(filled, std::min(term.left.width(), kTileColumns));
        }
    }
    // Columns are cut only where no line would be made twice and `after` does not need whole lines.
    const int64_t parts = filled > 0 || after ? 1 : std::max<int64_t>(1, out.columns / kTaskColumns);
    const LineTiles tiles(out.rows);
    on_every_thread([&](const auto& next) {
        const Scratch<T> scratch(filled * kTileLines);
        for (int64_t task = next(); task < tiles.count() * parts; task = next()) {
            const int64_t begin = tiles.begin(task / parts), end = tiles.begin(task / parts + 1);
            const int64_t first = task % parts * out.columns / parts, last = (task % parts + 1) * out.columns / parts;
            const Matrix<T> target = out.part(begin, end, first, last);
            bool more = add;
            for (const Term<T>& term : terms) {
                const int64_t width = term.left.width();
                const Matrix<const T> right = term.right.part(0, width, first, last);
                if (!term.left.fill) {
                    multiply<T>(target, term.left.memory.row_range(begin, end), right, more ? 1 : 0);
                    more = true;
                    continue;
                }
                for (int64_t column = 0; column < width || column == 0; column += kTileColumns) {
                    const int64_t stop = std::min(width, column + kTileColumns);
                    term.left.fill(begin, end, column, stop, scratch.get(), stop - column);
                    const auto left = contiguous_matrix<const T>(scratch.get(), end - begin, stop - column);
                    multiply<T>(target, left, right.row_range(column, stop), more ? 1 : 0);
                    more = true;
                }
            }
            if (after) {
                after(begin, end);
            }
        }
    });
}

// out [width, columns] = the lines' transpose @ right [lines, columns].
template <typename T>
void multiply_transposed(const Matrix<T>& out, const Lines<T>& left, const Matrix<const T>& right) {
    // The sum over lines is cut into groups with separate results, which are added in their order. A group has about as
    // many lines as a product needs for its full rate; where one block has all columns, there are groups for 2 or 4
    // threads.
    constexpr int64_t group_lines = 768, fewest_lines = 256, most_groups = 16, most_partial = int64_t{1} << 24;
    constexpr int64_t tile_lines = 352, block_columns = 512;
    const int64_t lines = left.count(), width = left.width(), size = width * out.columns;
    const int64_t blocks = (width + block_columns - 1) / block_columns;
    const int64_t most = std::min({lines / fewest_lines, most_groups, most_partial / std::max<int64_t>(1, size)});
    int64_t groups = std::max<int64_t>(1, std::min(lines / group_lines, most));
    if (blocks < 4 && most >= 4) {
        groups = std::min((groups + 3) / 4 * 4, most / 4 * 4);
    }
    const Scratch<T> partial(groups > 1 ? groups * size : 0);
    on_every_thread([&](const auto& next) {
        const Scratch<T> scratch(left.fill ? tile_lines * block_columns : 0);
        for (int64_t task = next(); task < groups * blocks; task = next()) {
            const int64_t group = task / blocks, begin = group * lines / groups, end = (group + 1) * lines / groups;
            const int64_t first = task % blocks * block_columns, last = std::min(width, first + block_columns);
            const Matrix<T> whole =
                groups > 1 ? contiguous_matrix(partial.get() + group * size, width, out.columns) : out;
            const Matrix<T> target = whole.row_range(first, last);
            if (!left.fill) {
                multiply<T>(target, left.memory.part(begin, end, first, last).flipped(), right.row_range(begin, end));
                continue;
            }
            const int64_t tiles = std::max<int64_t>(1, (end - begin + tile_lines - 1) / tile_lines);
            for (int64_t tile_at = 0; tile_at < tiles; ++tile_at) {
                const int64_t line = begin + tile_at * (end - begin) / tiles;
                const int64_t stop = begin + (tile_at + 1) * (end - begin) / tiles;
                left.fill(line, stop, first, last, scratch.get(), last - first);
                const auto tile = contiguous_matrix<const T>(scratch.get(), stop - line, last - first);
                multiply<T>(target, tile.flipped(), right.row_range(line, stop), tile_at > 0 ? 1 : 0);
            }
        }
    });
    if (groups > 1) {
        for_each_range(width, (int64_t{1} << 14) / std::max<int64_t>(1, out.columns), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                T* target = out.data + row * out.row_stride;
                const T* source = partial.get() + row * out.columns;
                for (int64_t column = 0; column < out.columns; ++column) {
                    target[column] = source[column] + source[size + column];
                }
                for (int64_t group = 2; group < groups; ++group) {
                    const T* next = source + group * size;
                    for (int64_t column = 0; column < out.columns; ++column) {
                        target[column] += next[column];
                    }
                }
            }
        });
    }
}

}  // namespace seegera
