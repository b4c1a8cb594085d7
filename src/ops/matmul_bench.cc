// Speed of packed products: GB/s of weights read (what bounds few rows) and Top/s of 8-bit products
// (what bounds many rows; two dots a product, an addition and a multiplication each).
//   matmul_bench --benchmark_filter=Q4_1
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "ops/matmul.h"

namespace ikv {
namespace {

// Larger than the last-level cache as a whole, so that one row reads memory.
constexpr size_t kNumMatrices = 64;

struct Setup {
  Setup(WeightType type, size_t num_outputs, size_t num_inputs, size_t num_rows)
      : x(num_rows * num_inputs, 0.5f), out(num_rows * num_outputs) {
    const WeightTypeInfo& info = weight_type_info(type);
    const std::vector<std::byte> bytes(
        num_outputs * num_inputs / info.block_elements * info.block_bytes, std::byte{0x11});
    const size_t packed_bytes = PackedMatrix::packed_bytes(type, num_outputs, num_inputs);
    auto memory = std::make_shared<AlignedBuffer>(
        AlignedBuffer::allocate(packed_bytes * kNumMatrices).value());
    for (size_t i = 0; i < kNumMatrices; ++i) {
      matrices.push_back(PackedMatrix::pack(type, bytes.data(), num_outputs, num_inputs, memory,
                                            i * packed_bytes));
    }
    scratch = AlignedBuffer::allocate(matmul_scratch_bytes(num_inputs, num_rows)).value();
  }
  std::vector<float> x;
  std::vector<float> out;
  std::vector<PackedMatrix> matrices;
  AlignedBuffer scratch;
};

void run(benchmark::State& state, WeightType type) {
  const auto num_rows = static_cast<size_t>(state.range(0));
  const auto num_outputs = static_cast<size_t>(state.range(1));
  const auto num_inputs = static_cast<size_t>(state.range(2));
  Setup setup(type, num_outputs, num_inputs, num_rows);
  ThreadPool threads(static_cast<int>(state.range(3)));
  float* const outs[] = {setup.out.data()};
  size_t next = 0;
  for (auto _ : state) {
    const PackedMatrix* const matrices[] = {&setup.matrices[next++ % kNumMatrices]};
    multiply(matrices, setup.x.data(), num_rows, outs, setup.scratch.data(), threads);
  }
  const auto products =
      static_cast<double>(num_rows) * static_cast<double>(num_outputs * num_inputs);
  const auto iterations = static_cast<double>(state.iterations());
  state.counters["GB/s"] =
      benchmark::Counter(iterations * static_cast<double>(setup.matrices[0].size_bytes()) / 1e9,
                         benchmark::Counter::kIsRate);
  state.counters["Top/s"] =
      benchmark::Counter(iterations * products * 4 / 1e12, benchmark::Counter::kIsRate);
  state.SetLabel(std::string(cpu_isa_name(cpu_isa())));
}

void add_benchmarks() {
  for (const WeightTypeInfo& info : weight_types()) {
    auto* bench = benchmark::RegisterBenchmark(
        std::string(info.name).c_str(),
        [type = info.type](benchmark::State& state) { run(state, type); });
    bench->ArgNames({"rows", "outputs", "inputs", "threads"})->UseRealTime();
    for (const int64_t threads : {1, 2}) {
      for (const int64_t rows : {1, 2, 4, 8, 128, 512}) bench->Args({rows, 1536, 768, threads});
    }
  }
}

}  // namespace
}  // namespace ikv

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  ikv::add_benchmarks();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
