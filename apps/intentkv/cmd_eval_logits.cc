#include "cmd_eval_logits.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli_error.h"
#include "engine/contiguous_attention.h"
#include "gguf/reader.h"
#include "model/model.h"

namespace ikv {
namespace {

struct EvalLogitsOptions {
  std::string model_path;
  std::string tokens_path;
  std::string out_path;
  int num_threads = 1;
  int chunk_tokens = 256;
  bool reference = false;
};

using Sequences = std::vector<std::vector<TokenId>>;

Result<Sequences> read_sequences(const std::string& path) {
  std::ifstream in(path);
  if (!in) return make_error(ErrorCode::kNotFound, "cannot read '" + path + "'");
  try {
    return nlohmann::json::parse(in).at("sequences").get<Sequences>();
  } catch (const nlohmann::json::exception& e) {
    return invalid_argument("'" + path +
                            "' must hold {\"sequences\": [[token, ...], ...]}: " + e.what());
  }
}

class LogitsWriter {
 public:
  explicit LogitsWriter(std::string path)
      : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wb"), &std::fclose) {}

  Status write(const std::vector<float>& logits, size_t size) {
    if (!file_ || std::fwrite(logits.data(), sizeof(float), size, file_.get()) != size) {
      return make_error(ErrorCode::kIo, "cannot write '" + path_ + "'");
    }
    return {};
  }

  // fclose flushes, so that a full disk is noticed here and not lost in a destructor.
  Status close() {
    if (!file_ || std::fclose(file_.release()) != 0) {
      return make_error(ErrorCode::kIo, "cannot write '" + path_ + "'");
    }
    return {};
  }

 private:
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

Status eval_sequence(const Model& model, const std::vector<TokenId>& tokens, int chunk_tokens,
                     Workspace& workspace, LogitsWriter& writer) {
  ContiguousAttention attention(model.config().num_layers, 1, workspace.threads());
  const size_t vocab = static_cast<size_t>(model.config().vocab_size);
  const size_t chunk = std::min(static_cast<size_t>(chunk_tokens), tokens.size());
  std::vector<float> logits(chunk * vocab);
  for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const size_t count = std::min(chunk, tokens.size() - begin);
    std::vector<ContiguousRow> rows;
    std::vector<int32_t> logit_rows;
    for (size_t i = 0; i < count; ++i) {
      rows.push_back({0, static_cast<LogicalPos>(begin + i)});
      logit_rows.push_back(static_cast<int32_t>(i));
    }
    IKV_RETURN_IF_ERROR(attention.begin_step(rows));
    const ForwardBatch batch{{tokens.data() + begin, count}, logit_rows};
    IKV_RETURN_IF_ERROR(model.forward(batch, attention, workspace, logits.data()));
    IKV_RETURN_IF_ERROR(writer.write(logits, count * vocab));
  }
  return {};
}

Status run(const EvalLogitsOptions& options) {
  IKV_ASSIGN_OR_RETURN(const Sequences sequences, read_sequences(options.tokens_path));
  IKV_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(options.model_path));
  ThreadPool threads(options.num_threads);
  ModelOptions model_options;
  if (options.reference) model_options.path = ComputePath::kReference;
  IKV_ASSIGN_OR_RETURN(const auto model, Model::load(file, model_options, threads));
  Workspace workspace(threads);
  LogitsWriter writer(options.out_path);
  for (const auto& tokens : sequences) {
    IKV_RETURN_IF_ERROR(eval_sequence(*model, tokens, options.chunk_tokens, workspace, writer));
  }
  return writer.close();
}

}  // namespace

void add_eval_logits_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<EvalLogitsOptions>();
  CLI::App* command = app.add_subcommand(
      "eval-logits", "Write the raw logits of given tokens, to compare with other implementations");
  command->add_option("-m,--model", options->model_path, "GGUF file")->required();
  command
      ->add_option("--tokens", options->tokens_path,
                   "JSON file: {\"sequences\": [[token, ...], ...]}")
      ->required();
  command
      ->add_option("--out", options->out_path,
                   "Output: little-endian float32 [tokens of all sequences][vocabulary]")
      ->required();
  command->add_option("-t,--threads", options->num_threads, "Threads that compute")
      ->check(CLI::Range(1, 256));
  command->add_option("--chunk", options->chunk_tokens, "Tokens per forward")
      ->check(CLI::Range(1, 65536));
  command->add_flag("--reference", options->reference,
                    "Plain float32 arithmetic instead of this CPU's kernels");
  command->callback([options, &exit_code] {
    const Status status = run(*options);
    exit_code = status.ok() ? kExitOk : report_failure(status.error());
  });
}

}  // namespace ikv
