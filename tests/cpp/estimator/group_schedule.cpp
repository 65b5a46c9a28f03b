// The schedule of layer groups against one written out plainly, and an evaluator that keeps what
// strategies share against one that does not.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "../support.hpp"
#include "scalemodel/search/group_space.hpp"

namespace scalemodel {
namespace {

using enum WaitCause;

/// Every unit, every transfer, one after the other: no unit is left out and none treated specially.
class PlainStep {
 public:
  PlainStep(const GroupTables& tables, const GroupStrategy& strategy)
      : tables_(tables), strategy_(strategy), groups_(tables.model().groups.size()) {
    REQUIRE(tables.find(strategy, costs_));
  }

  Waits waits{};

  void run(bool last_pass) {
    last_pass_ = last_pass;
    std::vector<Arrival> outputs(groups_);
    for (std::size_t g = 0; g < groups_; ++g) outputs[g] = forward(g, outputs);
    Arrival end;
    for (const Arrival& output : outputs) end = later(end, output);
    compute(Seconds{}, end);
    if (std::ranges::any_of(costs_.begin(), costs_.begin() + static_cast<long>(groups_),
                            [](const GroupCost* cost) { return cost->backward; })) {
      backward();
    }
    compute(Seconds{}, queues_[0]);
    compute(Seconds{}, queues_[1]);
  }

 private:
  struct Arrival {
    Seconds time;
    WaitCause cause = dp;
  };
  static Arrival later(const Arrival& a, const Arrival& b) { return b.time > a.time ? b : a; }

  Arrival send(const Transfer& moved, Seconds wait, WaitCause cause) {
    Arrival& queue = queues_[strategy_.queues == Queues::one ? 0 : moved.level];
    return queue = {max(queue.time, wait) + moved.time, cause};
  }
  /// The same, if it takes part: otherwise what was there before.
  Arrival pass_on(const Transfer& moved, const Arrival& before, WaitCause cause) {
    return takes_part(moved) ? send(moved, before.time, cause) : before;
  }
  void compute(Seconds time, const Arrival& input) {
    if (input.time > now_) {
      waits[static_cast<std::size_t>(input.cause)] += input.time - now_;
      now_ = input.time;
    }
    now_ += time;
  }
  void end_unit() {
    before_last_ = last_;
    last_ = now_;
    done_ = {now_, done_.cause};
  }
  Seconds gather_wait(bool compute_is_next) const {
    if (strategy_.prefetch == Prefetch::unlimited) return Seconds{};
    const bool early = strategy_.prefetch == Prefetch::one && compute_is_next;
    return early ? before_last_ : last_;
  }

  /// The units of a group, repeated, in forward order.
  std::vector<const UnitCost*> unrolled(std::size_t g) const {
    std::vector<const UnitCost*> units;
    const GroupCost& cost = *costs_[g];
    for (int r = 0; r < cost.repeat; ++r) {
      for (std::uint32_t u = 0; u < cost.units; ++u) units.push_back(tables_.units(cost) + u);
    }
    return units;
  }

  Arrival forward(std::size_t g, const std::vector<Arrival>& outputs) {
    const GroupCost& cost = *costs_[g];
    if (cost.has_tables) {
      compute(cost.tables.lookup, {});
      Arrival out{now_, exchange};
      for (const Transfer& moved : cost.tables.forward) out = pass_on(moved, out, exchange);
      return out;
    }
    Arrival input;
    const auto& producers = tables_.model().groups[g].waits_for;
    for (std::size_t i = 0; i < producers.size(); ++i) {
      const auto from = static_cast<std::size_t>(producers[i]);
      const bool moves = costs_[from]->layout != cost.layout;
      input =
          later(input, moves ? pass_on(cost.gather_in[i], outputs[from], reshard) : outputs[from]);
    }
    done_ = input;
    for (const UnitCost* u : unrolled(g)) {
      Arrival ready = done_;
      if ((u->parts & (kGather | kGatherForward)) != 0) {
        ready = later(ready, send(u->gather, gather_wait(true), dp));
      }
      if ((u->parts & kGatherOnce) != 0 && last_pass_) {
        ready = later(ready, send(u->gather, Seconds{}, dp));
      }
      if (takes_part(u->enter_forward)) {
        ready = later(ready, send(u->enter_forward, done_.time, tp));
      }
      if (takes_part(u->context_gather)) {
        ready = later(ready, send(u->context_gather, ready.time, cp));
      }
      if (takes_part(u->dispatch)) {
        ready = later(ready, send(u->dispatch, max(now_, done_.time), ep));
      }
      compute(u->forward, ready);
      end_unit();
      done_ = pass_on(u->combine, done_, ep);
      done_ = pass_on(u->join_forward, done_, tp);
    }
    return done_;
  }

  void backward() {
    std::vector<Arrival> gradients(groups_, {now_, dp});
    last_ = before_last_ = now_;
    const bool ahead =
        strategy_.backward_gather == BackwardGather::before && strategy_.prefetch != Prefetch::none;
    // Every unit in the order of the backward pass, so that each knows the next.
    std::vector<const UnitCost*> order;
    for (std::size_t g = groups_; g-- > 0;) {
      if (!costs_[g]->backward) continue;
      const auto units = unrolled(g);
      order.insert(order.end(), units.rbegin(), units.rend());
    }
    std::size_t at = 0;
    Arrival gathered;
    if (ahead && !order.empty() && (order[0]->parts & kGather) != 0) {
      gathered = send(order[0]->gather, now_, dp);
    }
    bool indices_sent = false;
    for (std::size_t g = groups_; g-- > 0;) {
      const GroupCost& cost = *costs_[g];
      if (!cost.backward) continue;
      if (cost.has_tables) {
        compute(cost.tables.update, gradients[g]);
        continue;
      }
      done_ = gradients[g];
      for (int left = cost.repeat * static_cast<int>(cost.units); left > 0; --left) {
        const UnitCost& u = *order[at++];
        Arrival ready = done_;
        if ((u.parts & kGather) != 0) {
          ready = later(ready, ahead ? gathered : send(u.gather, gather_wait(true), dp));
        }
        if (ahead && at < order.size() && (order[at]->parts & kGather) != 0) {
          gathered = send(order[at]->gather, gather_wait(false), dp);
        }
        if (strategy_.recompute && cost.can_run_again) {
          if (takes_part(u.enter_forward)) {
            ready = later(ready, send(u.enter_forward, last_, tp));
          }
          if (takes_part(u.context_gather)) {
            ready = later(ready, send(u.context_gather, ready.time, cp));
          }
          compute(u.forward, ready);
          ready = {now_, tp};
          for (const Transfer* moved : {&u.dispatch, &u.combine, &u.join_forward}) {
            ready = pass_on(*moved, ready, moved == &u.join_forward ? tp : ep);
          }
        }
        if (takes_part(u.context_gather)) {
          ready = later(ready, send(u.context_gather, max(last_, done_.time), cp));
        }
        if (takes_part(u.enter_backward)) {
          ready = later(ready, send(u.enter_backward, max(last_, done_.time), tp));
        }
        if (takes_part(u.combine)) {
          ready = later(ready, send(u.combine, max(now_, done_.time), ep));
        }
        compute(u.backward, ready);
        end_unit();
        done_ = pass_on(u.dispatch, done_, ep);
        done_ = pass_on(u.context_reduce, done_, cp);
        done_ = pass_on(u.join_backward, done_, tp);
        Arrival reduced{now_, dp};
        if ((u.parts & kReduce) != 0 || ((u.parts & kReduceOnce) != 0 && last_pass_)) {
          reduced = send(u.gradients[0], now_, dp);
        }
        const bool each = (u.parts & (kReplicasEach | kBucketedEach)) != 0;
        const bool bucketed = (u.parts & (kBucketed | kBucketedEach)) != 0;
        const bool alone = !bucketed || strategy_.buckets == Buckets::unit;
        if ((u.parts & kGradients) != 0 && alone && (each || last_pass_)) {
          pass_on(u.gradients[1], reduced, dp);
        }
      }
      if (strategy_.buckets == Buckets::group && (last_pass_ || cost.bucket_each) && cost.trained) {
        pass_on(cost.bucket, {max(now_, max(queues_[0].time, queues_[1].time))}, dp);
      }
      const auto& producers = tables_.model().groups[g].waits_for;
      for (const int before : producers) {
        const auto b = static_cast<std::size_t>(before);
        const GroupCost& producer = *costs_[b];
        if (!producer.backward) continue;
        Arrival there = done_;
        if (producer.layout != cost.layout) there = pass_on(producer.gather_out, there, reshard);
        for (const Transfer& moved : producer.tables.backward) {
          there = pass_on(moved, there, exchange);
        }
        for (const Transfer& moved : producer.tables.gradients) {
          there = pass_on(moved, there, exchange);
        }
        gradients[b] = later(gradients[b], there);
      }
      if (!indices_sent) {
        indices_sent = true;
        for (std::size_t t = 0; t < groups_; ++t) {
          for (const Transfer& moved : costs_[t]->tables.indices) pass_on(moved, {}, exchange);
        }
      }
    }
  }

  const GroupTables& tables_;
  GroupStrategy strategy_;
  std::size_t groups_;
  GroupCosts costs_{};
  bool last_pass_ = true;
  Seconds now_, last_, before_last_;
  Arrival done_;
  std::array<Arrival, 2> queues_{};
};

/// Tables, unequal layers, routed experts and blocks, each with meshes of every sort.
struct ComposedQuestion {
  GroupSpace space;
  std::vector<Mesh> meshes;
  std::vector<LayerGroup> groups;

  explicit ComposedQuestion(int blocks) {
    TableSet tables;
    tables.classes = {{64, 1e6, 20}};
    tables.dim = 128;
    MlpShape layers;
    layers.widths.assign(11, 1024);
    MlpShape unequal;
    unequal.widths = {512, 768, 1024, 1};
    TransformerShape stack;
    stack.layers = blocks;
    stack.hidden = 1024;
    stack.heads = 16;
    stack.ffn = 4096;
    stack.experts = 8;
    stack.experts_per_token = 2;
    stack.tokens = 64;
    groups = {embedding_tables("embedding", tables), mlp("bottom", layers),
              transformer("transformer", stack), mlp("top", unequal)};
    groups[2].waits_for = {0, 1};
    groups[3].waits_for = {2};
    add({"table_wise", "row_wise@8+table_wise", "table_wise@8+ddp"});
    add({"ddp", "fsdp", "tp@8+ddp", "fsdp@8+zero1"});
    add({"ddp", "sp@8+ddp", "sp@4+cp@2+fsdp", "cp@8+zero1"});
    add({"ep@8+ddp", "fsdp@8+ep"});
    add({"zero1", "tp@8+fsdp", "ddp"});
    space.variable_of_slot = {0, 1, 2, 3, 4};
    space.micro_batches = {1, 2};
    space.queues = {Queues::one, Queues::per_level};
    space.prefetch = {Prefetch::none, Prefetch::one, Prefetch::unlimited};
    space.backward_gather = {BackwardGather::before, BackwardGather::behind};
    space.buckets = {Buckets::unit, Buckets::group};
    space.recompute = {0, 1};
  }

  void add(std::initializer_list<const char*> texts) {
    auto& choices = space.meshes.emplace_back();
    for (const char* text : texts) {
      choices.push_back(static_cast<std::uint16_t>(meshes.size()));
      meshes.push_back(parse_mesh(text, 64));
    }
  }

  GroupTables tables(bool forward_only) const {
    Task task;
    task.global_batch = 4096;
    return {compose(groups, {"embedding", "bottom", "transformer", "top"}),
            testing::reference_cluster(64),
            task,
            Stack{},
            Ablation{},
            0.8,
            meshes,
            {1, 2},
            forward_only};
  }
};

}  // namespace

TEST_CASE("a schedule is the one that is written out plainly, bit for bit") {
  const ComposedQuestion question(6);  // few enough that none of the equal layers is skipped
  for (const bool forward_only : {false, true}) {
    const GroupTables tables = question.tables(forward_only);
    for (std::uint64_t row = 0; row < question.space.size(); row += 29) {
      const GroupStrategy strategy = question.space.at(row);
      const GroupEstimate estimate = evaluate_groups(tables, strategy);
      CAPTURE(row);
      REQUIRE(!is_illegal(estimate.verdict));
      PlainStep plain(tables, strategy);
      plain.run(true);
      if (strategy.micro_batches == 2) {
        PlainStep every(tables, strategy);
        every.run(false);
        for (std::size_t i = 0; i < kWaitCauses; ++i) plain.waits[i] += 1.0 * every.waits[i];
      }
      const Waits waits{estimate.exposed_tp, estimate.exposed_cp,       estimate.exposed_ep,
                        estimate.exposed_dp, estimate.exposed_exchange, estimate.exposed_reshard};
      CHECK(waits == plain.waits);
    }
  }
}

TEST_CASE("what strategies share may be kept: answers are the same, bit for bit") {
  const ComposedQuestion question(24);
  const GroupTables tables = question.tables(false);
  GroupEvaluator in_order(tables), in_leaps(tables);
  GroupCursor cursor(question.space, 0);
  const std::uint64_t rows = question.space.size();
  for (std::uint64_t row = 0; row < rows; ++row, cursor.next()) {
    CAPTURE(row);
    REQUIRE(*cursor == question.space.at(row));
    const GroupEstimate estimate = in_order(*cursor);
    if (row % 5 != 0) continue;
    CHECK(estimate == evaluate_groups(tables, *cursor));
    const GroupStrategy leap = question.space.at(row * 31 % rows);
    CHECK(in_leaps(leap) == evaluate_groups(tables, leap));
  }
}

TEST_CASE("no step is shorter than what its sums say before it is scheduled") {
  for (const int layers : {6, 24}) {
    const ComposedQuestion question(layers);
    for (const bool forward_only : {false, true}) {
      const GroupTables tables = question.tables(forward_only);
      GroupEvaluator looking(tables);
      std::uint64_t scheduled = 0;
      const std::uint64_t rows = question.space.size();
      for (std::uint64_t row = 0; row < rows; row += layers == 6 ? 1 : 7) {
        CAPTURE(row);
        const GroupStrategy strategy = question.space.at(row);
        const Reason verdict = looking.look_at(strategy);
        const GroupEstimate whole = evaluate_groups(tables, strategy);
        REQUIRE(verdict == whole.verdict);
        CHECK(looking.least_step_time() <= whole.step_time);
        CHECK(looking.least_after_forward() <= whole.step_time);
        if (row % 3 != 0) continue;  // the passes of the others are left out
        ++scheduled;
        CHECK(looking.estimate() == whole);
        CHECK(looking.estimate() == whole);  // asked again
      }
      CHECK(scheduled > 0);
    }
  }
}

TEST_CASE("a search that schedules what may be among the best finds the same as a sweep") {
  const ComposedQuestion question(6);
  const GroupTables tables = question.tables(false);
  const std::uint64_t rows = question.space.size();
  std::vector<GroupEstimate> all(rows);
  REQUIRE(sweep_groups(tables, question.space, 1, all, {}));
  const auto* column = find_group_column("step_time_s");
  for (const bool too_big : {false, true}) {
    for (const std::size_t top : {std::size_t{1}, std::size_t{40}}) {
      CAPTURE(too_big);
      CAPTURE(top);
      GroupSearchOptions options;
      options.objective.terms = {{column, 1}};
      options.top = top;
      options.too_big = too_big;
      const GroupSearchResult found = search_groups(tables, question.space, options, {});
      // A constraint that always holds has every row scheduled.
      options.constraints = {{column, Comparison::greater_equal, 0, nullptr}};
      const GroupSearchResult whole = search_groups(tables, question.space, options, {});
      CHECK(found.counts.evaluated == rows);
      CHECK(found.counts.verdicts == whole.counts.verdicts);
      REQUIRE(found.candidates.size() == whole.candidates.size());
      for (std::size_t i = 0; i < found.candidates.size(); ++i) {
        CHECK(found.candidates[i].row == whole.candidates[i].row);
        CHECK(found.candidates[i].estimate == all[found.candidates[i].row]);
      }
    }
  }
}

}  // namespace scalemodel
