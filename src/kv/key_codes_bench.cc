// Speed of the key codes' kernels: ns per token and head for coding, tables and scan.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>

#include "kv/key_codebook_fit.h"
#include "kv/key_codes.h"

namespace ikv {
namespace {

struct Setup {
  explicit Setup(int head_dim_in, int num_tokens) : head_dim(head_dim_in) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    keys.resize(static_cast<size_t>(head_dim) * 512);
    for (float& x : keys) x = normal(random);
    books = KeyCodebooks::create(KeyCodeKind::kProduct, {{1, head_dim}}).value();
    books.set_head(
        0, 0, fit_head_codebook(KeyCodeKind::kProduct, keys.data(), 512, head_dim, head_dim, 1, 4));
    const size_t page_bytes = key_code_bytes_per_token(head_dim) * 32;
    codes.resize(page_bytes * (num_tokens / 32));
    for (auto& byte : codes) byte = static_cast<std::byte>(random());
    for (size_t at = 0; at < codes.size(); at += page_bytes) pages.push_back(codes.data() + at);
    std::shuffle(pages.begin(), pages.end(), random);
  }
  int head_dim;
  KeyCodebooks books;
  std::vector<float> keys;
  std::vector<std::byte> codes;
  std::vector<const std::byte*> pages;
};

void encode_tokens(benchmark::State& state) {
  Setup setup(static_cast<int>(state.range(0)), 512);
  for (auto _ : state) {
    encode_keys(setup.books.head(0, 0), setup.head_dim, setup.keys.data(), setup.head_dim, 512, 0,
                setup.codes.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * 512);
}
BENCHMARK(encode_tokens)->Arg(64)->Arg(128)->Arg(256);

void build_tables(benchmark::State& state) {
  Setup setup(static_cast<int>(state.range(0)), 32);
  KeyScanTables tables;
  for (auto _ : state) {
    build_scan_tables(setup.books.head(0, 0), setup.head_dim, setup.keys.data(), setup.head_dim, 3,
                      tables);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * 3);
}
BENCHMARK(build_tables)->Arg(64)->Arg(128);

/// Arguments: head size, queries of the group, tokens. Pages in random order, as in a used pool.
void scan_tokens(benchmark::State& state) {
  const int queries = static_cast<int>(state.range(1));
  const int tokens = static_cast<int>(state.range(2));
  Setup setup(static_cast<int>(state.range(0)), tokens);
  KeyScanTables tables;
  build_scan_tables(setup.books.head(0, 0), setup.head_dim, setup.keys.data(), setup.head_dim,
                    queries, tables);
  std::vector<float> scores(static_cast<size_t>(tokens) * queries);
  for (auto _ : state) {
    scan_key_code_pages(tables, setup.pages, 32, tokens, scores.data(), tokens);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * tokens);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(setup.codes.size()));
}
BENCHMARK(scan_tokens)
    ->Args({64, 1, 8192})
    ->Args({64, 3, 8192})
    ->Args({64, 3, 1 << 20})
    ->Args({128, 4, 32768});

}  // namespace
}  // namespace ikv

BENCHMARK_MAIN();
