// Writes the tiny random model that tests of built programs run on: write_tiny_model OUT.gguf
#include <cstdio>

#include "gguf/testing/tiny_model.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  ikv::testing::TinyModelOptions options;
  options.context_tokens = 1024;
  const ikv::Status status = ikv::testing::write_tiny_llama(argv[1], options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status.ok() ? 0 : 1;
}
