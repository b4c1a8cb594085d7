// Finding a file's tensors by name, with their shape checked.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/reader.h"

namespace ikv {

/// GGUF's name of the tensor with one frequency divisor per rotated pair.
inline constexpr const char* kRopeDivisors = "rope_freqs.weight";

bool has_tensor(const GgufFile& file, const std::string& name);

/// The tensor [num_rows][row_size] (GGUF lists the contiguous dimension first); num_rows 0 accepts
/// any number of rows. Errors: kInvalidFile if it is missing or has another shape (both are named).
Result<const GgufTensor*> find_matrix(const GgufFile& file, const std::string& name, int num_rows,
                                      int row_size);

/// A one-dimensional tensor of `size` elements as floats.
Status read_float_tensor(const GgufFile& file, const std::string& name, int size,
                         std::vector<float>& out);

}  // namespace ikv
