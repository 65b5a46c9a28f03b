#include "scalemodel/timeline/events.hpp"

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "scalemodel/timeline/trace.hpp"
#include "timeline/regular.hpp"

namespace scalemodel {
namespace {

using testing::about_equal;
using testing::at_most;
using testing::Question;

/// Random strategies with few enough passes to look at every event.
template <class Visit>
void for_timelines(int count, std::uint64_t seed, Visit&& visit) {
  testing::for_random_estimates(count, seed,
                                [&](Question& q, const Strategy& s, const Estimate& e) {
                                  if (e.micro_batches * s.pp * s.vpp > 4e3) return;
                                  CAPTURE(q.name);
                                  CAPTURE(name_of(s.schedule));
                                  CAPTURE(name_of(s.sharding));
                                  visit(q, s, step_timeline(q.tables, s, {}));
                                });
}

/// Rounding, in seconds, beside the step.
bool before(Seconds a, Seconds b, Seconds step) { return a <= b + 1e-9 * step; }

TEST_CASE("events of one stream follow each other, within the step") {
  for_timelines(200, 51, [](Question&, const Strategy&, const Timeline& t) {
    std::map<std::pair<std::int32_t, Stream>, Seconds> free;
    bool ordered = true, inside = true;
    for (const Event& event : events(t)) {
      Seconds& end = free[{event.rank, event.stream}];
      ordered = ordered && before(end, event.start, t.step_time);
      end = event.start + event.duration;
      inside = inside && event.start >= Seconds{} && before(end, t.step_time, t.step_time);
    }
    CHECK(ordered);
    CHECK(inside);
  });
}

TEST_CASE("columns of events hold what the records do, each stream where its place says") {
  for_timelines(100, 55, [](Question&, const Strategy&, const Timeline& t) {
    const std::vector<Event> all = events(t);
    const std::vector<std::size_t> places = event_places(t);
    REQUIRE(places.back() == all.size());
    std::vector<std::int32_t> rank(all.size()), chunk(all.size()), micro_batch(all.size());
    std::vector<std::int8_t> stream(all.size()), activity(all.size());
    std::vector<double> start(all.size()), duration(all.size()), bytes(all.size());
    write_events(t, places,
                 {rank.data(), stream.data(), activity.data(), chunk.data(), micro_batch.data(),
                  start.data(), duration.data(), bytes.data()});
    bool equal = true, placed = true;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Event& e = all[i];
      equal = equal && rank[i] == e.rank && stream[i] == static_cast<std::int8_t>(e.stream) &&
              activity[i] == static_cast<std::int8_t>(e.activity) && chunk[i] == e.chunk &&
              micro_batch[i] == e.micro_batch && start[i] == e.start.base() &&
              duration[i] == e.duration.base() && bytes[i] == e.bytes.base();
      const std::size_t of =
          static_cast<std::size_t>(e.rank) * kStreams + static_cast<std::size_t>(e.stream);
      placed = placed && places[of] <= i && i < places[of + 1];
    }
    CHECK(equal);
    CHECK(placed);
  });
}

TEST_CASE("nothing is used before it arrived, and all that is sent is received") {
  for_timelines(100, 52, [](Question&, const Strategy& s, const Timeline& t) {
    // Start of every pass and arrival of every boundary, by where it is used.
    using Key = std::tuple<bool, std::int32_t, int, int>;
    std::map<Key, Seconds> arrival;
    const bool turned = traits_of(s.schedule).two_directions || traits_of(s.schedule).v_shape;
    for (const TransferEvent& transfer : t.transfers) {
      int chunk = transfer.at.chunk;
      if (!turned && !transfer.gradient && transfer.from == t.costs.stages - 1) ++chunk;
      if (!turned && transfer.gradient && transfer.from == 0) --chunk;
      arrival[{transfer.gradient, transfer.to, chunk, transfer.at.micro_batch}] = transfer.end;
    }
    std::size_t used = 0;
    bool causal = true;
    for (const PassEvent& pass : t.passes) {
      const auto check = [&](bool gradient, ChunkBatch at) {
        const auto found = arrival.find({gradient, pass.stage, at.chunk, at.micro_batch});
        if (found == arrival.end()) return;
        ++used;
        causal = causal && before(found->second, pass.start, t.step_time);
      };
      if (runs_forward(pass.slot.pass)) check(false, pass.slot.at);
      if (makes_input_gradient(pass.slot.pass)) check(true, pass.slot.backward_at());
    }
    CHECK(causal);
    CHECK(used == t.transfers.size());
    double balance = 0;
    for (const Event& event : events(t)) {
      if (event.activity == Activity::send_activations) balance += event.bytes.base();
      if (event.activity == Activity::send_gradients) balance += event.bytes.base();
      if (event.activity == Activity::receive_activations) balance -= event.bytes.base();
      if (event.activity == Activity::receive_gradients) balance -= event.bytes.base();
    }
    CHECK(balance == 0);
  });
}

TEST_CASE("the critical path is one unbroken chain as long as the step") {
  for_timelines(200, 53, [](Question&, const Strategy&, const Timeline& t) {
    Seconds now;
    bool unbroken = true;
    for (const Event& event : critical_path(t)) {
      unbroken = unbroken && event.duration > Seconds{} && about_equal(event.start, now, 1e-7);
      now = event.start + event.duration;
    }
    CHECK(unbroken);
    CHECK(about_equal(now, t.step_time));
  });
}

TEST_CASE("kernels and waits of a stage fill its step: busy time is conserved") {
  for_timelines(100, 54, [](Question&, const Strategy&, const Timeline& t) {
    std::vector<Seconds> busy(static_cast<std::size_t>(t.costs.stages));
    std::vector<Seconds> passes = busy;
    for (const Event& event : events(t)) {
      if (event.stream == Stream::compute && event.chunk >= 0) {
        busy[static_cast<std::size_t>(event.rank)] += event.duration;
      }
    }
    for (const PassEvent& pass : t.passes) {
      passes[static_cast<std::size_t>(pass.stage)] += pass.compute;
    }
    for (std::size_t s = 0; s < busy.size(); ++s) CHECK(about_equal(busy[s], passes[s], 1e-6));
  });
}

TEST_CASE("memory is never negative, never beside its kinds, and ends at the resident level") {
  for_timelines(100, 55, [](Question&, const Strategy&, const Timeline& t) {
    bool sane = true;
    std::int32_t rank = -1;
    Seconds now;
    MemoryKinds last;
    std::vector<MemoryKinds> ends(static_cast<std::size_t>(t.costs.stages));
    for (const MemorySample& sample : memory_profile(t)) {
      sane = sane && (sample.rank > rank || sample.time > now);
      rank = sample.rank;
      now = sample.time;
      sane = sane && sample.allocated.activations >= Bytes{} &&
             sample.allocated.logits >= Bytes{} && sample.allocated.temporary >= Bytes{};
      ends[static_cast<std::size_t>(rank)] = sample.allocated;
    }
    CHECK(sane);
    for (std::size_t s = 0; s < ends.size(); ++s) {
      CHECK(ends[s].total() == t.costs.resources[s].resident.total());
    }
  });
}

TEST_CASE("a trace holds every event once, and every pass's operators when asked") {
  std::vector<Question> questions = testing::regular_questions();
  Tables& tables = questions[1].tables;
  const Strategy s = testing::degrees(4, 4);
  const Timeline t = step_timeline(tables, s, {});
  const auto count = [](const std::string& text, std::string_view what) {
    std::size_t found = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
      ++found;
    }
    return found;
  };
  const std::string plain = trace_json(t, {});
  CHECK(count(plain, R"("ph":"X")") == events(t).size());
  CHECK(count(plain, R"("ph":"s")") == t.transfers.size());
  CHECK(count(plain, R"("ph":"f")") == t.transfers.size());
  CHECK(count(plain, R"("ph":"C")") == memory_profile(t).size());
  CHECK(count(plain, "{") == count(plain, "}"));
  const std::string detailed = trace_json(t, operators_by_kind(tables, s));
  CHECK(count(detailed, R"("name":"qkv")") >= 2 * 48 / 4 * 4);
  CHECK(detailed.size() > plain.size());
}

}  // namespace
}  // namespace scalemodel
