// What a layer does to its sums, in both halves of a file.
#pragma once

#include <cstdint>

#include "isa.h"

namespace seegera {

// In the order of ACTIVATIONS in seegera_fast/reference/activation.py.
enum class Activation : int64_t { relu, tanh, none };

// activation(sum + bias). The bias has one number for each column of the sums, and is null where there is none.
template <typename T>
struct Finish {
    const T* bias = nullptr;
    Activation activation = Activation::none;
    bool leaves_as_is() const { return bias == nullptr && activation == Activation::none; }
};

}  // namespace seegera

#ifndef SEEGERA_REGISTER

#include "math.h"

namespace seegera {
namespace SEEGERA_ISA {

template <typename V, int Count>
inline void activate(Activation activation, V (&sum)[Count]) {
    if (activation == Activation::relu) {
        for (int i = 0; i < Count; ++i) {
            sum[i] = at_least(sum[i], 0);
        }
    } else if (activation == Activation::tanh) {
        for (int i = 0; i < Count; ++i) {
            sum[i] = tanh(sum[i]);
        }
    }
}

// The gradient of the sum, from that of the output and the output itself.
template <typename V>
inline V through_activation(Activation activation, V gradient, V output) {
    if (activation == Activation::relu) {
        // As torch.relu: a NaN lets it through.
        return keep<V>(~less_equal(output, V{}), gradient);
    }
    return activation == Activation::tanh ? weighted<V>(gradient, 1 - output * output) : gradient;
}

}  // namespace SEEGERA_ISA
}  // namespace seegera

#endif
