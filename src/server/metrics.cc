#include "server/metrics.h"

#include <prometheus/text_serializer.h>

namespace ikv {

Metrics::Metrics()
    : requests_(&prometheus::BuildCounter()
                     .Name("intentkv_http_requests_total")
                     .Help("Answered requests by endpoint and status")
                     .Register(registry_)),
      first_token_(&histogram("intentkv_time_to_first_token_seconds",
                              "From a request's arrival to its first token",
                              {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120})),
      inter_token_(&histogram("intentkv_inter_token_latency_seconds",
                              "Between two pieces of a reply",
                              {0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5})),
      duration_(&histogram("intentkv_request_duration_seconds",
                           "From a request's arrival to its reply's end",
                           {0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300})),
      missed_mass_(&histogram("intentkv_missed_attention_mass",
                              "Measured attention mass that pruning left out, by reply",
                              {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5})),
      pruned_(&counter("intentkv_pruned_tokens_total",
                       "Cached tokens that the last step of a reply did not read, summed")),
      demoted_(&counter("intentkv_demoted_pages_total", "Pages turned to their smaller form")),
      diverged_(&counter("intentkv_divergences_total",
                         "Re-sent histories that differed from the stored one")),
      lost_(&counter("intentkv_divergence_lost_tokens_total",
                     "Cached tokens that divergences made useless")),
      cancelled_(&counter("intentkv_cancelled_requests_total",
                          "Replies ended because their client went away")) {}

prometheus::Counter& Metrics::counter(const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry_).Add({});
}

prometheus::Gauge& Metrics::gauge(const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry_).Add({});
}

prometheus::Histogram& Metrics::histogram(const char* name, const char* help,
                                          const prometheus::Histogram::BucketBoundaries& bounds) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry_).Add({}, bounds);
}

void Metrics::count_request(const std::string& endpoint, int status) {
  requests_->Add({{"endpoint", endpoint}, {"status", std::to_string(status)}}).Increment();
}

void Metrics::observe_first_token(double seconds) {
  first_token_->Observe(seconds);
}
void Metrics::observe_inter_token(double seconds) {
  inter_token_->Observe(seconds);
}

void Metrics::observe_reply(const Usage& usage, double seconds) {
  duration_->Observe(seconds);
  pruned_->Increment(usage.kv.pruned_tokens);
  demoted_->Increment(static_cast<double>(usage.kv.demoted_pages));
  if (usage.kv.num_probes > 0) missed_mass_->Observe(usage.kv.missed_mass);
  for (const Divergence& divergence : usage.divergences) {
    diverged_->Increment();
    lost_->Increment(divergence.lost_tokens);
  }
}

// The engine counts by itself; ours follows it.
void Metrics::update(const char* name, const char* help, double total) {
  prometheus::Counter& own = counter(name, help);
  own.Increment(total - own.Value());
}

std::string Metrics::text(const EngineStats& stats, int num_connections) {
  const std::lock_guard lock(scrape_mutex_);
  const auto as_double = [](uint64_t value) { return static_cast<double>(value); };
  const double cap = as_double(stats.kv_cap_bytes);
  gauge("intentkv_requests_running", "Generations that compute").Set(stats.running);
  gauge("intentkv_requests_waiting", "Generations in the queue").Set(stats.waiting);
  gauge("intentkv_sessions", "Sessions remembered").Set(stats.sessions);
  gauge("intentkv_connections", "Open connections").Set(num_connections);
  gauge("intentkv_kv_cache_usage_perc", "Cache memory in use, 1 is the cap")
      .Set(cap > 0 ? as_double(stats.kv_used_bytes) / cap : 0);
  gauge("intentkv_kv_cache_used_bytes", "Cache memory in use").Set(as_double(stats.kv_used_bytes));
  gauge("intentkv_kv_cache_peak_bytes", "Most cache memory ever in use")
      .Set(as_double(stats.kv_peak_bytes));
  gauge("intentkv_kv_cache_cap_bytes", "The hard cap").Set(cap);
  gauge("intentkv_weight_bytes", "The model's weights").Set(as_double(stats.weight_bytes));
  update("intentkv_steps_total", "Steps of the engine", as_double(stats.steps));
  update("intentkv_prompt_tokens_total", "Prompt tokens run through the model",
         as_double(stats.prompt_tokens_evaluated));
  update("intentkv_generation_tokens_total", "Tokens generated",
         as_double(stats.completion_tokens));
  update("intentkv_prefix_cache_queries_total", "Prompt tokens looked up in the cache",
         as_double(stats.prompt_tokens_evaluated + stats.prompt_tokens_cached));
  update("intentkv_prefix_cache_hits_total", "Prompt tokens taken from the cache",
         as_double(stats.prompt_tokens_cached));
  update("intentkv_requests_refused_total", "Generations refused by the engine",
         as_double(stats.requests_refused));
  return prometheus::TextSerializer().Serialize(registry_.Collect());
}

}  // namespace ikv
