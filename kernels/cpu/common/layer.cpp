// Dropout, and bias and activation with their gradient, on lines.
#ifndef SEEGERA_REGISTER

#include "layer.h"

#include "dropout.h"

namespace seegera {
namespace SEEGERA_ISA {

template <typename T>
void drop_lines(const DropLines<T>& p, int64_t line_begin, int64_t line_end, int64_t column_begin, int64_t column_end,
                T* out, int64_t out_stride) {
    const PhiloxKey key(p.dropping.seed);
    const Event dropped(p.dropping.threshold);
    const T scale = static_cast<T>(p.dropping.scale);
    const int64_t count = column_end - column_begin;
    for (int64_t line = line_begin; line < line_end; ++line, out += out_stride) {
        const int64_t row = line / p.num_draws, draw = line % p.num_draws;
        const T* source = p.values + row * p.row_stride + draw * p.draw_stride + column_begin;
        if (p.dropping.on()) {
            drop_columns(key, dropped, scale, row, draw, p.first_column + column_begin, count, source, out);
        } else {
            __builtin_memcpy(out, source, count * sizeof(T));
        }
    }
}

template <typename T>
void finish_lines(const Finish<T>& finish, int64_t width, T* lines, int64_t line_begin, int64_t line_end) {
    using V = Vector<T, kVectorBytes>;
    for (int64_t line = line_begin; line < line_end; ++line) {
        T* target = lines + line * width;
        for (int64_t column = 0; column < width; column += kLanes<V>) {
            const int64_t left = width - column;
            V sum[1] = {load_part<V>(target + column, left)};
            if (finish.bias != nullptr) {
                sum[0] += load_part<V>(finish.bias + column, left);
            }
            activate(finish.activation, sum);
            store_part(target + column, sum[0], left);
        }
    }
}

template <typename T>
void activation_gradient_lines(const ActivationGradient<T>& p, int64_t line_begin, int64_t line_end) {
    using V = Vector<T, kVectorBytes>;
    for (int64_t line = line_begin; line < line_end; ++line) {
        const int64_t begin = line * p.width;
        for (int64_t column = 0; column < p.width; column += kLanes<V>) {
            const int64_t left = p.width - column;
            V gradient = load_part<V>(p.gradient + begin + column, left);
            if (p.out != nullptr) {
                gradient = through_activation(p.activation, gradient, load_part<V>(p.output + begin + column, left));
                store_part(p.out + begin + column, gradient, left);
            }
            if (p.sums != nullptr) {
                const V before = line == line_begin ? V{} : load_part<V>(p.sums + column, left);
                store_part(p.sums + column, before + gradient, left);
            }
        }
    }
}

#define SEEGERA_INSTANTIATE(T)                                                                      \
    template void drop_lines(const DropLines<T>&, int64_t, int64_t, int64_t, int64_t, T*, int64_t); \
    template void finish_lines(const Finish<T>&, int64_t, T*, int64_t, int64_t);                    \
    template void activation_gradient_lines(const ActivationGradient<T>&, int64_t, int64_t);
SEEGERA_INSTANTIATE(float)
SEEGERA_INSTANTIATE(double)
#undef SEEGERA_INSTANTIATE

}  // namespace SEEGERA_ISA
}  // namespace seegera

#endif
