#include "relevance/centre_radius.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/dot.h"

namespace ikv {
namespace {

// Mean absolute deviation over standard deviation of a normal distribution, sqrt(2 / pi).
constexpr float kAbsolutePerStandard = 0.7978846f;

Error missing(ScorerKind kind, const char* what) {
  return invalid_argument("relevance: scorer '" + std::string(scorer_name(kind)) + "' needs " +
                          what + " of each page");
}

// Directions of the means, all as long as the means are on average.
void make_directions(const PageData& data, std::vector<float>& centre) {
  const size_t head_dim = static_cast<size_t>(data.head_dim);
  std::vector<float> norms;
  double total = 0.0;
  for (size_t page = 0; page < data.num_pages(); ++page) {
    const float* mean = data.mean.data() + page * head_dim;
    norms.push_back(std::sqrt(dot_product(mean, mean, head_dim)));
    total += static_cast<double>(norms.back());
  }
  const float average =
      static_cast<float>(total / std::max<double>(1.0, static_cast<double>(norms.size())));
  for (size_t page = 0; page < data.num_pages(); ++page) {
    const float factor = norms[page] > 0.0f ? average / norms[page] : 0.0f;
    for (size_t c = 0; c < head_dim; ++c) centre[page * head_dim + c] *= factor;
  }
}

}  // namespace

bool has_centre_radius(ScorerKind kind) {
  return kind == ScorerKind::kCosine || kind == ScorerKind::kDot || kind == ScorerKind::kMinMax ||
         kind == ScorerKind::kBox;
}

Result<CentreRadius> make_centre_radius(ScorerKind kind, const PageData& data) {
  CentreRadius result;
  result.head_dim = data.head_dim;
  for (const int32_t count : data.num_tokens) {
    result.log_tokens.push_back(std::log(static_cast<float>(count)));
  }
  if (kind == ScorerKind::kMinMax) {
    if (data.minimum.empty() || data.maximum.empty()) return missing(kind, "minimum and maximum");
    for (size_t i = 0; i < data.minimum.size(); ++i) {
      result.centre.push_back(0.5f * (data.maximum[i] + data.minimum[i]));
      result.radius.push_back(0.5f * (data.maximum[i] - data.minimum[i]));
    }
    return result;
  }
  if (data.mean.empty()) return missing(kind, "the mean key");
  result.centre.assign(data.mean.begin(), data.mean.end());
  if (kind == ScorerKind::kCosine) make_directions(data, result.centre);
  if (kind != ScorerKind::kBox) return result;
  if (!data.absolute_deviation.empty()) {
    result.radius.assign(data.absolute_deviation.begin(), data.absolute_deviation.end());
  } else if (!data.deviation.empty()) {
    for (const float deviation : data.deviation) {
      result.radius.push_back(kAbsolutePerStandard * deviation);
    }
  } else {
    return missing(kind, "the deviation of keys");
  }
  return result;
}

float CentreRadius::score(const float* query, float scale, size_t page) const {
  const size_t width = static_cast<size_t>(head_dim);
  float sum = dot_product(query, centre.data() + page * width, width);
  if (!radius.empty()) {
    const float* r = radius.data() + page * width;
    for (size_t c = 0; c < width; ++c) sum += std::abs(query[c]) * r[c];
  }
  return log_tokens[page] + scale * sum;
}

}  // namespace ikv
