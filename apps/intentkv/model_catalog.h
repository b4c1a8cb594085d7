// The models that `intentkv model get` knows: where they come from and what they must be.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ikv {

/// A model file inside a wheel on PyPI.
struct CatalogModel {
  std::string_view name;
  std::string_view description;
  std::string_view licence;
  std::string_view package;  ///< of the wheel
  std::string_view version;
  std::string_view member;     ///< the model's path inside the wheel
  std::string_view file_name;  ///< what it is called here
  uint64_t size_bytes;
  std::string_view sha256;
};

/// All of them.
std::span<const CatalogModel> model_catalog();

/// By name; null if there is none.
const CatalogModel* find_catalog_model(std::string_view name);

}  // namespace ikv
