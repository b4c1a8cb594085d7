// What the oracle tests read: the real model, shared conversations, and goldens of the NumPy
// forward.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "text/chat_template.h"

namespace ikv::testing {

/// $IKV_TEST_MODEL, else the model that `intentkv model get smollm2` brings into the repository.
std::string model_path();

/// $IKV_DATA_DIR, else shared/data beside the repository.
std::string data_dir();

/// SHA-256 of a file's bytes as lower-case hex. kNotFound if it cannot be read.
Result<std::string> sha256_of_file(const std::string& path);

/// A range of messages of a shared conversation, as tokens in the model's chat format.
struct OracleSegment {
  std::string file;
  std::string id;
  size_t first = 0;  ///< messages first..last, both inclusive
  size_t last = 0;
  size_t num_tokens = 0;  ///< the range's tokens are cut here
  std::string ids_sha256;
};

/// Tokens of a segment, by our own tokenizer and chat template. kInvalidArgument if their hash is
/// not the golden's: then the text layer or the data differ from the oracle's.
Result<std::vector<TokenId>> segment_tokens(const OracleSegment& segment,
                                            const ChatTemplate& chat_template);

/// One position's prediction: log-probabilities of the best tokens, and of a sample of the others.
struct OracleRow {
  std::vector<uint32_t> top_ids;  ///< best first
  std::vector<float> top_log_p;
  std::vector<uint32_t> sample_ids;  ///< drawn from the rest in proportion to their probability
  std::vector<float> sample_log_p;
};

/// tests/golden/oracle_logits.{json,bin}; make_logit_goldens.py says how they come about.
struct OracleGolden {
  std::string model_sha256;
  size_t vocab_size = 0;
  std::vector<OracleSegment> segments;
  std::vector<OracleRow> rows;  ///< of all segments, one after the other
};

Result<OracleGolden> load_oracle_golden();

/// KL(oracle || logits) of one row in nats: unbiased, see make_logit_goldens.py for the estimator.
double estimate_kl(const OracleRow& row, const float* logits, size_t vocab_size);

/// KL(reference || other) in nats over whole rows of logits.
double exact_kl(const float* reference, const float* other, size_t vocab_size);

/// Index of the largest; the first of equal ones.
size_t arg_max(const float* values, size_t size);

}  // namespace ikv::testing
