// Functions of the AVX-512 kernel table. Internal to attention.
#pragma once

#include "attention/attention_kernels.h"

namespace ikv::attention_avx512 {

float quantise(const float* q, int head_dim, int8_t* high, int8_t* low, int32_t* sum);
void score_f32(const QueryView& query, const KeyRows& keys, float* logits, size_t stride);
void score_f16(const QueryView& query, const KeyRows& keys, float* logits, size_t stride);
void score_bf16(const QueryView& query, const KeyRows& keys, float* logits, size_t stride);
void score_int8(const QueryView& query, const KeyRows& keys, float* logits, size_t stride);
void score_int4(const QueryView& query, const KeyRows& keys, float* logits, size_t stride);
void finish_logits(float* logits, int count, float cap);
void softmax(float* x, int count, float* max, float* sum);
void values_f32(const ValueRows& values, const float* p, size_t stride, int group, int head_dim,
                float* out);
void values_f16(const ValueRows& values, const float* p, size_t stride, int group, int head_dim,
                float* out);
void values_bf16(const ValueRows& values, const float* p, size_t stride, int group, int head_dim,
                 float* out);
void values_int8(const ValueRows& values, const float* p, size_t stride, int group, int head_dim,
                 float* out);
void values_int4(const ValueRows& values, const float* p, size_t stride, int group, int head_dim,
                 float* out);

// Of PrefillKernels.
void pack_keys8(const uint8_t* const* rows, int count, int head_dim, uint8_t* packed);
void pack_values8(const uint8_t* const* rows, int count, int head_dim, uint8_t* packed);
void pack_keys(const float* rows, int count, int head_dim, float* packed);

}  // namespace ikv::attention_avx512
