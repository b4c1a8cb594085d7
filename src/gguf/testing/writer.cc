#include "gguf/testing/writer.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <utility>

namespace ikv::testing {
namespace {

template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

template <typename T>
std::string raw_array(uint32_t type, const std::vector<T>& values) {
  std::string bytes = raw(type) + raw<uint64_t>(values.size());
  for (const T& value : values) bytes += raw(value);
  return bytes;
}

}  // namespace

std::string gguf_bytes(uint8_t value) {
  return raw(value);
}

std::string gguf_bytes(uint32_t value) {
  return raw(value);
}

std::string gguf_bytes(uint64_t value) {
  return raw(value);
}

std::string gguf_bytes(std::string_view text) {
  return raw<uint64_t>(text.size()).append(text);
}

void GgufWriter::erase(const std::string& key) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.key == key; });
}

void GgufWriter::set_raw(const std::string& key, uint32_t type, std::string bytes) {
  erase(key);
  entries_.push_back({key, type, std::move(bytes)});
}

void GgufWriter::set_u32(const std::string& key, uint32_t value) {
  set_raw(key, kUint32, raw(value));
}

void GgufWriter::set_u64(const std::string& key, uint64_t value) {
  set_raw(key, kUint64, raw(value));
}

void GgufWriter::set_i32(const std::string& key, int32_t value) {
  set_raw(key, kInt32, raw(value));
}

void GgufWriter::set_f32(const std::string& key, float value) {
  set_raw(key, kFloat32, raw(value));
}

void GgufWriter::set_bool(const std::string& key, bool value) {
  set_raw(key, kBool, raw<uint8_t>(value ? 1 : 0));
}

void GgufWriter::set_string(const std::string& key, std::string_view value) {
  set_raw(key, kString, gguf_bytes(value));
}

void GgufWriter::set_strings(const std::string& key, const std::vector<std::string>& values) {
  std::string bytes = raw<uint32_t>(kString) + raw<uint64_t>(values.size());
  for (const std::string& value : values) bytes += gguf_bytes(std::string_view(value));
  set_raw(key, kArray, std::move(bytes));
}

void GgufWriter::set_i32s(const std::string& key, const std::vector<int32_t>& values) {
  set_raw(key, kArray, raw_array(kInt32, values));
}

void GgufWriter::set_f32s(const std::string& key, const std::vector<float>& values) {
  set_raw(key, kArray, raw_array(kFloat32, values));
}

void GgufWriter::erase_tensor(const std::string& name) {
  std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
}

void GgufWriter::add_tensor(Tensor tensor) {
  erase_tensor(tensor.name);
  tensors_.push_back(std::move(tensor));
}

GgufWriter::Tensor* GgufWriter::find_tensor(const std::string& name) {
  for (Tensor& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

void GgufWriter::set_tensor_offset(const std::string& name, uint64_t offset) {
  offsets_[name] = offset;
}

std::vector<std::byte> GgufWriter::finish() const {
  const auto pad = [&](std::string& bytes) {
    bytes.resize((bytes.size() + alignment_ - 1) / alignment_ * alignment_);
  };
  std::string head("GGUF");
  head += raw(version_) + raw<uint64_t>(tensors_.size()) + raw<uint64_t>(entries_.size());
  for (const Entry& entry : entries_) {
    head += gguf_bytes(std::string_view(entry.key)) + raw(entry.type) + entry.bytes;
  }
  std::string data;
  for (const Tensor& tensor : tensors_) {
    const auto changed = offsets_.find(tensor.name);
    const uint64_t offset = changed == offsets_.end() ? data.size() : changed->second;
    head += gguf_bytes(std::string_view(tensor.name));
    head += raw(static_cast<uint32_t>(tensor.dims.size()));
    for (const uint64_t dim : tensor.dims) head += raw(dim);
    head += raw(static_cast<uint32_t>(tensor.type)) + raw(offset);
    data.append(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
    pad(data);
  }
  pad(head);
  head += data;
  std::vector<std::byte> bytes(head.size());
  std::memcpy(bytes.data(), head.data(), head.size());
  return bytes;
}

Status write_file(const std::string& path, const std::vector<std::byte>& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) return make_error(ErrorCode::kIo, "cannot write '" + path + "'");
  return {};
}

}  // namespace ikv::testing
