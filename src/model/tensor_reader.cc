#include "model/tensor_reader.h"

#include <span>

#include "quant/dequantise.h"

namespace ikv {
namespace {

std::string shape_text(std::span<const uint64_t> dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dims[i]);
  }
  return text + "]";
}

Result<const GgufTensor*> find(const GgufFile& file, const std::string& name) {
  const GgufTensor* tensor = file.find_tensor(name);
  if (tensor == nullptr) return invalid_file("the model has no tensor '" + name + "'");
  return tensor;
}

// A dimension that is not given counts as 1.
uint64_t dim(const GgufTensor& tensor, size_t i) {
  return i < tensor.dims.size() ? tensor.dims[i] : 1;
}

Error wrong_shape(const GgufTensor& tensor, const std::string& expected) {
  return invalid_file("tensor '" + std::string(tensor.name) + "' has shape " +
                      shape_text(tensor.dims) + "; the model's metadata asks for " + expected);
}

}  // namespace

bool has_tensor(const GgufFile& file, const std::string& name) {
  return file.find_tensor(name) != nullptr;
}

Result<const GgufTensor*> find_matrix(const GgufFile& file, const std::string& name, int num_rows,
                                      int row_size) {
  IKV_ASSIGN_OR_RETURN(const GgufTensor* tensor, find(file, name));
  const bool rows_fit = num_rows == 0 || dim(*tensor, 1) == static_cast<uint64_t>(num_rows);
  if (dim(*tensor, 0) != static_cast<uint64_t>(row_size) || !rows_fit || dim(*tensor, 2) != 1 ||
      dim(*tensor, 3) != 1) {
    const std::string rows = num_rows == 0 ? "rows" : std::to_string(num_rows);
    return wrong_shape(*tensor,
                       std::string("[").append(std::to_string(row_size)) + ", " + rows + "]");
  }
  return tensor;
}

Status read_float_tensor(const GgufFile& file, const std::string& name, int size,
                         std::vector<float>& out) {
  IKV_ASSIGN_OR_RETURN(const GgufTensor* tensor, find(file, name));
  if (dim(*tensor, 0) != static_cast<uint64_t>(size) || dim(*tensor, 1) != 1 ||
      dim(*tensor, 2) != 1 || dim(*tensor, 3) != 1) {
    return wrong_shape(*tensor, std::string("[").append(std::to_string(size)) + "]");
  }
  out.resize(static_cast<size_t>(size));
  dequantise(tensor->type, tensor->data.data(), out.size(), out.data());
  return {};
}

}  // namespace ikv
