// From a file's tensors to a model's weights.
#pragma once

#include <memory>

#include "base/result.h"
#include "base/thread_pool.h"
#include "gguf/reader.h"
#include "model/decoder_spec.h"
#include "model/model.h"
#include "model/weights.h"

namespace ikv {

/// Finds every tensor that `spec` calls for, checks all shapes and types before the first is read,
/// and re-packs them, several at a time on `threads`. Sets the vocabulary size, tying and number of
/// parameters in `spec.config`. A tensor of the file that nothing asked for is an error: the model
/// would compute something else than its authors meant.
Result<std::unique_ptr<DecoderWeights>> load_weights(const GgufFile& file,
                                                     const ModelOptions& options,
                                                     ThreadPool& threads, DecoderSpec& spec);

}  // namespace ikv
