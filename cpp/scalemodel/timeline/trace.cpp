#include "scalemodel/timeline/trace.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "scalemodel/timeline/events.hpp"

namespace scalemodel {
namespace {

class TraceWriter {
 public:
  TraceWriter(const Timeline& timeline, const std::vector<OperatorList>& operators)
      : t_(timeline), operators_(operators) {}

  std::string write() {
    text_ = R"({"displayTimeUnit":"ms","traceEvents":[)";
    for (std::int32_t rank = 0; rank < t_.costs.stages; ++rank) name_process(rank);
    const std::vector<Event> all = events(t_);
    name_threads(all);
    for (const Event& event : all) slice(event);
    for (const MemorySample& sample : memory_profile(t_)) counter(sample);
    text_ += "]}";
    return std::move(text_);
  }

 private:
  void open(char phase, std::int32_t rank) {
    if (text_.back() == '}') text_ += ",\n";
    text_ += R"({"ph":")";
    text_ += phase;
    text_ += R"(","pid":)";
    integer(rank);
  }
  void integer(std::int64_t value) {
    std::array<char, 24> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    text_.append(digits.data(), end.ptr);
  }
  void number(double value) {
    std::array<char, 40> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                   std::chars_format::general, 12);
    text_.append(digits.data(), end.ptr);
  }
  void field(std::string_view name) {
    text_ += ",\"";
    text_ += name;
    text_ += "\":";
  }
  void microseconds(std::string_view name, Seconds time) {
    field(name);
    number(time / unit::us);
  }
  void thread(Stream stream) {
    field("tid");
    integer(static_cast<std::int64_t>(stream));
  }
  void title(std::string_view name) {
    field("name");
    text_ += '"';
    text_ += name;
    text_ += '"';
  }

  void name_process(std::int32_t rank) {
    open('M', rank);
    title("process_name");
    text_ += R"(,"args":{"name":"stage )";
    integer(rank);
    text_ += "\"}}";
  }
  void name_threads(const std::vector<Event>& all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Event& event = all[i];
      if (i > 0 && all[i - 1].rank == event.rank && all[i - 1].stream == event.stream) continue;
      open('M', event.rank);
      thread(event.stream);
      title("thread_name");
      text_ += R"(,"args":{"name":")";
      text_ += name_of(event.stream);
      text_ += "\"}}";
    }
  }

  void slice(const Event& event) {
    open('X', event.rank);
    thread(event.stream);
    title(name_of(event.activity));
    microseconds("ts", event.start);
    microseconds("dur", event.duration);
    text_ += R"(,"args":{"chunk":)";
    integer(event.chunk);
    text_ += R"(,"micro_batch":)";
    integer(event.micro_batch);
    text_ += R"(,"bytes":)";
    number(event.bytes.base());
    text_ += "}}";
    arrow(event);
    if (event.stream == Stream::compute && event.chunk >= 0) break_down(event);
  }

  void arrow(const Event& event) {
    const std::int32_t stages = t_.costs.stages;
    std::int32_t from = event.rank;
    bool to_next = false, begins = false;
    switch (event.stream) {
      case Stream::send_next:
        to_next = begins = true;
        break;
      case Stream::send_previous:
        begins = true;
        break;
      case Stream::receive_previous:
        to_next = true;
        from = (event.rank + stages - 1) % stages;
        break;
      case Stream::receive_next:
        from = (event.rank + 1) % stages;
        break;
      case Stream::compute:
      case Stream::tp:
      case Stream::cp:
      case Stream::ep:
      case Stream::dp:
      case Stream::host:
        return;
    }
    const bool gradient =
        event.activity == Activity::send_gradients || event.activity == Activity::receive_gradients;
    const std::int64_t channel =
        4 * static_cast<std::int64_t>(from) + (to_next ? 2 : 0) + (gradient ? 1 : 0);
    open(begins ? 's' : 'f', event.rank);
    thread(event.stream);
    title("boundary");
    microseconds("ts", event.start);
    text_ += begins ? R"(,"cat":"boundary")" : R"(,"cat":"boundary","bp":"e")";
    field("id");
    integer((channel * t_.costs.chunks_per_stage + event.chunk) * t_.costs.micro_batches +
            event.micro_batch);
    text_ += '}';
  }

  /// Kernels of one operator in a pass, before they are scaled to it.
  static Seconds share(const OperatorCost& op, Activity activity) {
    // Communication has streams of its own.
    if (op.name.ends_with("_parallel")) return Seconds{};
    switch (activity) {
      case Activity::forward:
      case Activity::recompute:
        return op.forward;
      case Activity::weight_gradient:
        return op.m > 0 ? op.backward : Seconds{};
      default:
        return op.backward;
    }
  }

  void break_down(const Event& event) {
    if (operators_.empty()) return;
    const ChunkCost& chunk = t_.costs.chunk(event.rank, event.chunk);
    const bool ahead = event.activity == Activity::forward || event.activity == Activity::recompute;
    std::vector<const OperatorCost*> sequence;
    for (std::size_t k = 0; k + 1 < operators_.size(); ++k) {
      for (int layer = 0; layer < chunk.layers[k]; ++layer) {
        for (const OperatorCost& op : operators_[k]) sequence.push_back(&op);
      }
    }
    if (chunk.head && event.activity != Activity::recompute) {
      for (const OperatorCost& op : operators_.back()) sequence.push_back(&op);
    }
    if (!ahead) std::ranges::reverse(sequence);
    Seconds sum;
    for (const OperatorCost* op : sequence) sum += share(*op, event.activity);
    if (sum <= Seconds{}) return;
    const double scale = event.duration / sum;
    Seconds now = event.start;
    for (const OperatorCost* op : sequence) {
      const Seconds duration = scale * share(*op, event.activity);
      if (duration <= Seconds{}) continue;
      open('X', event.rank);
      thread(event.stream);
      title(op->name);
      microseconds("ts", now);
      microseconds("dur", duration);
      text_ += '}';
      now += duration;
    }
  }

  void counter(const MemorySample& sample) {
    open('C', sample.rank);
    title("memory (bytes)");
    microseconds("ts", sample.time);
    text_ += R"(,"args":{)";
    const MemoryKinds& allocated = sample.allocated;
    const std::array<std::pair<std::string_view, Bytes>, 9> kinds{
        {{"weights", allocated.weights},
         {"gradients", allocated.gradients},
         {"optimizer", allocated.optimizer},
         {"activations", allocated.activations},
         {"logits", allocated.logits},
         {"temporary", allocated.temporary},
         {"communication", allocated.communication},
         {"gathered", allocated.gathered},
         {"reserve", allocated.reserve}}};
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      if (i > 0) text_ += ',';
      text_ += '"';
      text_ += kinds[i].first;
      text_ += "\":";
      number(kinds[i].second.base());
    }
    text_ += "}}";
  }

  const Timeline& t_;
  const std::vector<OperatorList>& operators_;
  std::string text_;
};

}  // namespace

std::string trace_json(const Timeline& timeline, const std::vector<OperatorList>& operators) {
  return TraceWriter(timeline, operators).write();
}

}  // namespace scalemodel
