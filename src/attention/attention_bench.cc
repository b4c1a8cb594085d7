// Speed of attention at the shape of SmolLM2-135M: 30 layers, 3 KV heads, groups of 3, head
// size 64. One iteration is a whole model's attention of one step. Arguments: tokens cached, format
// of the pages (0 f32, 1 f16, 2 bf16, 3 int8, 4 int4), threads.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "attention/paged_attention.h"
#include "attention/testing/random_cache.h"

namespace ikv {
namespace {

using testing::RandomCache;

constexpr int kLayers = 30, kKvHeads = 3, kGroup = 3, kHeadDim = 64, kBlock = 32, kRows = 512;

/// All layers' pages, in one arena as the pool has them.
struct Model {
  Model(int num_tokens, KvFormat format) : cache(kHeadDim, kBlock, 1) {
    const int num_pages = num_tokens / kBlock;
    cache.append({format, format}, kBlock);
    layout = *cache.pages()[0].layout;
    own.append({KvFormat::kF16, KvFormat::kF16}, kBlock);
    const size_t heads = kLayers * kKvHeads;
    arena = AlignedBuffer::allocate(std::max<size_t>(heads * static_cast<size_t>(num_pages), 1) *
                                    layout.page_bytes)
                .value();
    pages.resize(heads);
    size_t next = 0;
    for (int p = 0; p < num_pages; ++p) {
      for (auto& list : pages) {
        std::byte* data = arena.data() + next++ * layout.page_bytes;
        std::copy_n(cache.pages()[0].data, layout.page_bytes, data);
        list.push_back({data, &layout, p * kBlock, kBlock, 0});
      }
    }
    q = cache.normal(static_cast<size_t>(kRows) * kKvHeads * kGroup * kHeadDim);
    out.resize(q.size());
  }
  std::vector<DecodeJob> decode_jobs(int layer) {
    std::vector<DecodeJob> jobs(kKvHeads);
    for (int h = 0; h < kKvHeads; ++h) {
      const size_t offset = static_cast<size_t>(h) * kGroup * kHeadDim;
      jobs[static_cast<size_t>(h)].q = q.data() + offset;
      jobs[static_cast<size_t>(h)].out = out.data() + offset;
      jobs[static_cast<size_t>(h)].pages = pages[static_cast<size_t>(layer * kKvHeads + h)];
      jobs[static_cast<size_t>(h)].position = 1 << 30;
    }
    return jobs;
  }
  RandomCache cache, own{kHeadDim, kBlock, 2};
  KvPageLayout layout;
  AlignedBuffer arena;
  std::vector<std::vector<KvPageView>> pages;  // [layer][kv head]
  std::vector<float> q, out;
  AttentionSpec spec{kKvHeads * kGroup, kKvHeads, kHeadDim, 0.125f, 0, 0.0f, nullptr};
};

void report(benchmark::State& state, size_t bytes) {
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(bytes) * static_cast<double>(state.iterations()) / 1e9,
                         benchmark::Counter::kIsRate);
}

void decode_all(benchmark::State& state) {
  Model model(static_cast<int>(state.range(0)), static_cast<KvFormat>(state.range(1)));
  ThreadPool threads(static_cast<int>(state.range(2)));
  AttentionScratch scratch;
  for (auto _ : state) {
    for (int layer = 0; layer < kLayers; ++layer) {
      attend_decode(model.spec, model.decode_jobs(layer), scratch, threads);
    }
  }
  report(state, model.arena.size_bytes());
}

/// Scores every fourth token, attends half of them: a stand-in for what key codes choose.
void decode_chosen(benchmark::State& state) {
  Model model(static_cast<int>(state.range(0)), static_cast<KvFormat>(state.range(1)));
  ThreadPool threads(static_cast<int>(state.range(2)));
  std::vector<PageEntry> candidates, chosen;
  for (int i = 0; i < state.range(0); ++i) {
    if (model.cache.random()() % 4 == 0) candidates.push_back(static_cast<PageEntry>(i));
  }
  for (size_t i = 0; i < candidates.size(); i += 2) chosen.push_back(candidates[i]);
  const size_t stride = candidates.size();
  std::vector<float> logits(kKvHeads * kGroup * stride);
  for (auto _ : state) {
    for (int layer = 0; layer < kLayers; ++layer) {
      const auto jobs = model.decode_jobs(layer);
      threads.parallel_for(kKvHeads, [&](size_t h, int) {
        float* own = logits.data() + h * kGroup * stride;
        score_entries(model.spec, jobs[h], candidates, own, stride);
        attend_scored(model.spec, jobs[h], chosen, own, stride);
      });
    }
  }
}

void prefill(benchmark::State& state) {
  const auto depth = static_cast<int>(state.range(0));
  Model model(depth + kRows, static_cast<KvFormat>(state.range(1)));
  ThreadPool threads(static_cast<int>(state.range(2)));
  AttentionScratch scratch;
  constexpr size_t kWidth = kKvHeads * kGroup * kHeadDim;
  for (auto _ : state) {
    for (int layer = 0; layer < kLayers; ++layer) {
      std::vector<PrefillJob> jobs;
      for (int block = kRows / kBlock; block-- > 0;) {
        for (int h = 0; h < kKvHeads; ++h) {
          PrefillJob job;
          const size_t offset = static_cast<size_t>(block) * kBlock * kWidth +
                                static_cast<size_t>(h) * kGroup * kHeadDim;
          job.q = model.q.data() + offset;
          job.out = model.out.data() + offset;
          job.q_stride = job.out_stride = kWidth;
          job.num_rows = kBlock;
          job.first_position = depth + block * kBlock;
          job.pages = std::span(model.pages[static_cast<size_t>(layer * kKvHeads + h)])
                          .first(static_cast<size_t>(depth / kBlock + block));
          job.own = model.own.pages()[0];
          job.own.begin = job.first_position;
          jobs.push_back(job);
        }
      }
      attend_prefill(model.spec, jobs, scratch, threads);
    }
  }
}

/// Sealing 512 tokens of every layer and KV head.
void seal(benchmark::State& state) {
  Model model(kBlock, static_cast<KvFormat>(state.range(0)));
  const KvPageView own = model.own.pages()[0];
  for (auto _ : state) {
    for (int i = 0; i < kLayers * kKvHeads * kRows / kBlock; ++i) {
      convert_kv_page(*own.layout, own.data, kBlock, model.layout, model.arena.data());
    }
  }
}

BENCHMARK(decode_all)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->ArgsProduct({{7168}, {3, 1, 4}, {2, 1}})
    ->Args({1024, 3, 2})
    ->Args({1024, 3, 1})
    ->Args({256, 3, 1})
    ->Args({256, 1, 1})
    ->Args({256, 4, 1});
BENCHMARK(decode_chosen)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Args({7168, 3, 2})
    ->Args({7168, 3, 1});
BENCHMARK(prefill)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Args({0, 3, 2})
    ->Args({7168, 3, 2})
    ->Args({1024, 3, 2})
    ->Args({7168, 4, 2})
    ->Args({7168, 1, 2});
BENCHMARK(seal)->Unit(benchmark::kMillisecond)->Arg(3)->Arg(4);

}  // namespace
}  // namespace ikv
