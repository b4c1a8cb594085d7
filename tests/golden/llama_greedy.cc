// llama.cpp's greedy continuations, as ids. Built by make_greedy_goldens.py, not by CMake.
// Usage: llama_greedy MODEL NUM_TOKENS THREADS < prompts, each ended by a NUL byte
// Prints for each prompt a line of its ids and a line of the ids that follow. Cache in float32 and
// no flash attention, so that nothing but the weights' own kernels rounds.
#include <llama.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "llama_greedy: %s\n", what);
  std::exit(1);
}

llama_token best_token(llama_context* context, int num_tokens) {
  const float* logits = llama_get_logits_ith(context, -1);
  return static_cast<llama_token>(std::max_element(logits, logits + num_tokens) - logits);
}

std::vector<llama_token> tokenise(const llama_vocab* vocab, const std::string& text) {
  std::vector<llama_token> ids(text.size() + 8);
  const int count =
      llama_tokenize(vocab, text.data(), static_cast<int>(text.size()), ids.data(),
                     static_cast<int>(ids.size()), /*add_special=*/true, /*parse_special=*/true);
  if (count <= 0) fail("a prompt has no tokens");
  ids.resize(static_cast<size_t>(count));
  return ids;
}

void print_ids(const std::vector<llama_token>& ids) {
  for (const llama_token id : ids) std::printf("%d ", id);
  std::printf("\n");
}

void continue_prompt(llama_context* context, const llama_vocab* vocab, const std::string& prompt,
                     int num_tokens) {
  llama_memory_clear(llama_get_memory(context), true);
  std::vector<llama_token> ids = tokenise(vocab, prompt);
  print_ids(ids);
  llama_batch batch = llama_batch_get_one(ids.data(), static_cast<int>(ids.size()));
  std::vector<llama_token> out;
  while (static_cast<int>(out.size()) < num_tokens) {
    if (llama_decode(context, batch) != 0) fail("llama_decode failed");
    out.push_back(best_token(context, llama_vocab_n_tokens(vocab)));
    if (llama_vocab_is_eog(vocab, out.back())) break;
    batch = llama_batch_get_one(&out.back(), 1);
  }
  print_ids(out);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) fail("usage: llama_greedy MODEL NUM_TOKENS THREADS < prompts");
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params model_params = llama_model_default_params();
  llama_model* model = llama_model_load_from_file(argv[1], model_params);
  if (model == nullptr) fail("the model does not load");
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 512;
  params.n_threads = params.n_threads_batch = std::atoi(argv[3]);
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) fail("no context");
  const std::string input{std::istreambuf_iterator<char>(std::cin), {}};
  for (size_t begin = 0; begin < input.size();) {
    const size_t end = std::min(input.find('\0', begin), input.size());
    continue_prompt(context, llama_model_get_vocab(model), input.substr(begin, end - begin),
                    std::atoi(argv[2]));
    begin = end + 1;
  }
  llama_free(context);
  llama_model_free(model);
}
