// What /metrics tells, in Prometheus' text format.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <memory>
#include <mutex>
#include <string>

#include "intentkv/engine.h"

namespace ikv {

/// Counters, gauges and histograms of one server. Thread-safe.
class Metrics {
 public:
  Metrics();

  /// One answered request.
  void count_request(const std::string& endpoint, int status);
  /// The first token of a reply, counted from the request's arrival.
  void observe_first_token(double seconds);
  /// Between two pieces of one reply.
  void observe_inter_token(double seconds);
  /// A reply's end.
  void observe_reply(const Usage& usage, double seconds);
  void count_cancelled() { cancelled_->Increment(); }

  /// All of it as text, with the engine's figures as they stand.
  std::string text(const EngineStats& stats, int num_connections);

 private:
  prometheus::Counter& counter(const char* name, const char* help);
  prometheus::Gauge& gauge(const char* name, const char* help);
  prometheus::Histogram& histogram(const char* name, const char* help,
                                   const prometheus::Histogram::BucketBoundaries& bounds);
  void update(const char* name, const char* help, double total);

  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>* requests_;
  prometheus::Histogram* first_token_;
  prometheus::Histogram* inter_token_;
  prometheus::Histogram* duration_;
  prometheus::Histogram* missed_mass_;
  prometheus::Counter* pruned_;
  prometheus::Counter* demoted_;
  prometheus::Counter* diverged_;
  prometheus::Counter* lost_;
  prometheus::Counter* cancelled_;
  std::mutex scrape_mutex_;
};

}  // namespace ikv
