#include "model/model.h"

#include "model/architecture.h"
#include "model/load_weights.h"
#include "model/weights.h"
#include "ops/rms_norm.h"

namespace ikv {

Model::Model(DecoderSpec spec, std::unique_ptr<DecoderWeights> weights)
    : spec_(std::move(spec)), weights_(std::move(weights)) {}

Model::~Model() = default;

Result<std::unique_ptr<Model>> Model::load(const GgufFile& file, const ModelOptions& options,
                                           ThreadPool& threads) {
  IKV_ASSIGN_OR_RETURN(DecoderSpec spec, describe_decoder(file));
  if (const auto name = file.string("general.name"); name.ok()) spec.config.name = name.value();
  IKV_ASSIGN_OR_RETURN(auto weights, load_weights(file, options, threads, spec));
  return std::unique_ptr<Model>(new Model(std::move(spec), std::move(weights)));
}

uint64_t Model::weight_bytes() const {
  return weights_->size_bytes();
}

void Model::normalise(const float* x, const std::vector<float>& weight, size_t num_rows, float* out,
                      Workspace& workspace) const {
  rms_norm(x, weight.data(), num_rows, weight.size(), spec_.config.norm_epsilon, out,
           workspace.threads());
}

}  // namespace ikv
