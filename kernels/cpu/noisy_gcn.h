// What the forms of noisy_gcn share: the layer, and the noise.
#pragma once

#include <cstdint>

#include "common/csr_product.h"
#include "common/isa.h"
#include "common/layer.h"

namespace seegera {

// The noise, 0 or 1, times the factors of dropout where it is on.
template <typename T>
struct DrawnNoise {
    int64_t seed;
    int64_t threshold;
    Dropping dropping;
    int64_t num_draws;
    int64_t noise_dim;
    int64_t first_column;  // where the noise begins in the lines that the mask of dropout was drawn for
    T* out;                // [n, S, c]
};

}  // namespace seegera

#ifndef SEEGERA_REGISTER

#include "common/philox.h"

namespace seegera {
namespace SEEGERA_ISA {

template <typename T>
void draw_noise_lines(const DrawnNoise<T>& p, int64_t line_begin, int64_t line_end) {
    constexpr int64_t chunk = kBlockColumns;
    const PhiloxKey key(p.seed);
    const Event one(p.threshold), dropped(p.dropping.threshold);
    const T scale = static_cast<T>(p.dropping.scale);
    for (int64_t line = line_begin; line < line_end; ++line) {
        const int64_t row = line / p.num_draws, draw = line % p.num_draws;
        for (int64_t begin = 0; begin < p.noise_dim; begin += chunk) {
            const int64_t count = p.noise_dim - begin < chunk ? p.noise_dim - begin : chunk;
            uint32_t noise[chunk], masks[chunk];
            philox_columns(key, row, philox_draw(kNoiseStream, draw), begin, count, noise);
            if (p.dropping.on()) {
                philox_columns(key, row, philox_draw(kDropoutStream, draw), p.first_column + begin, count, masks);
            }
            T* target = p.out + line * p.noise_dim + begin;
            for (int64_t i = 0; i < count; ++i) {
                const bool kept = !p.dropping.on() || !dropped.happens(masks[i]);
                target[i] = one.happens(noise[i]) && kept ? scale : T(0);
            }
        }
    }
}

template void draw_noise_lines(const DrawnNoise<float>&, int64_t, int64_t);
template void draw_noise_lines(const DrawnNoise<double>&, int64_t, int64_t);

// sum += noise @ weight
template <typename T, typename Block>
inline void add_noise(const T* noise, const T* weight, int64_t noise_dim, int64_t width, const Block& block,
                      typename Block::Sums& sum) {
    for (int64_t k = 0; k < noise_dim; ++k) {
        block.add(noise[k], weight + k * width, sum);
    }
}

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

namespace seegera {

SEEGERA_FOR_EACH_ISA(template <typename T> void draw_noise_lines(const DrawnNoise<T>&, int64_t, int64_t);)

using Optional = std::optional<Tensor>;

struct NoisyLayer {
    std::optional<Operand> propagation;  // its transpose in backward
    Operand features;
    int64_t num_columns;  // l
    int64_t width;        // h
    int64_t num_draws;
    int64_t noise_dim;
    int64_t noise_threshold;
    Dropping dropping;
    Activation activation;

    int64_t rows() const { return features.rows(); }
    int64_t lines() const { return rows() * num_draws; }
    // X in the dense layout, each row dropped anew for each draw.
    template <typename T>
    Lines<T> dropped_features() const {
        return dropped(DropLines<T>{dropping, num_draws, features.values.const_data_ptr<T>(), num_columns, 0, 0},
                       rows(), num_columns);
    }
};

// The gradients; empty where they are not computed.
struct NoisyGradients {
    Tensor weight;
    Tensor noise_weight;
    Tensor bias;
};

template <typename T>
Tensor layer_noise(const NoisyLayer& layer) {
    Tensor noise = new_tensor(layer.features.values, {layer.rows(), layer.num_draws, layer.noise_dim});
    if (layer.noise_dim > 0) {
        const DrawnNoise<T> p{
            layer.dropping.seed, layer.noise_threshold,      layer.dropping, layer.num_draws, layer.noise_dim,
            layer.num_columns,   noise.mutable_data_ptr<T>()};
        for_each_range(layer.lines(), task_lines(kLineBytes),
                       [&](int64_t begin, int64_t end) { SEEGERA_CHOOSE(draw_noise_lines<T>)(p, begin, end); });
    }
    return noise;
}

// Noise [n, S, c] through the propagation, or as it is where there is none.
template <typename T>
Tensor propagated(const NoisyLayer& layer, const Tensor& noise) {
    const Matrix<const T> rows = as_rows<T>(noise);
    if (!layer.propagation || rows.columns == 0) {
        return noise;
    }
    Tensor out = new_tensor(noise, {rows.rows, rows.columns});
    multiply_operand<T>(*layer.propagation, rows, {}, out.mutable_data_ptr<T>());
    return out;
}

}  // namespace seegera

#endif
