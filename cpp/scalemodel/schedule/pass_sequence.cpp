#include "scalemodel/schedule/pass_sequence.hpp"

#include <algorithm>
#include <utility>

#include "scalemodel/base/index.hpp"

namespace scalemodel {
namespace {

/// Builds the sequence of one pipeline.
class Sequencer {
 public:
  Sequencer(PassSequence& sequence, int micro_batches)
      : sequence_(sequence),
        shape_(sequence.shape),
        chunks_per_stage_(static_cast<int>(shape_.chunks.size()) / shape_.pp),
        micro_batches_(micro_batches),
        arrived_(2 * shape_.chunks.size() * at(micro_batches)) {
    find_classes();
    orders_.reserve(at(shape_.pp));
    for (int s = 0; s < shape_.pp; ++s) {
      orders_.push_back(
          stage_order(shape_.schedule, shape_.pp, chunks_per_stage_, s, micro_batches));
    }
  }

  void run() {
    std::vector<std::vector<Turn>> turns;
    turns.reserve(at(shape_.pp));
    for (int s = 0; s < shape_.pp; ++s) turns.push_back(turns_of(s));
    std::vector<std::size_t> position(turns.size());
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t s = 0; s < turns.size(); ++s) {
        while (position[s] < turns[s].size() && is_ready(turns[s][position[s]])) {
          const Turn& turn = turns[s][position[s]++];
          if (turn.output != Turn::kNone) arrived_[at(turn.output)] = true;
          if (turn.gradient != Turn::kNone) arrived_[at(turn.gradient)] = true;
          sequence_.turns.push_back(turn);
          progress = true;
        }
      }
    }
    sequence_.travelling = arrived_.size();
  }

 private:
  void find_classes() {
    for (const StageClass& chunk : shape_.chunks) {
      const auto alike = [&](const StageClass& c) {
        return c.layers == chunk.layers && c.embedding == chunk.embedding && c.head == chunk.head;
      };
      auto& classes = sequence_.classes;
      const auto found = std::ranges::find_if(classes, alike);
      class_of_.push_back(static_cast<int>(found - classes.begin()));
      if (found == classes.end()) classes.push_back(chunk);
    }
  }

  int chunk(int stage, int index) const { return stage * chunks_per_stage_ + index; }
  int class_of(int stage, int index) const { return class_of_[at(chunk(stage, index))]; }
  /// Number of what a chunk receives of a micro-batch: its input, then the gradient of its output.
  int input(int stage, ChunkBatch b) const {
    return chunk(stage, b.chunk) * micro_batches_ + b.micro_batch;
  }
  int output_gradient(int stage, ChunkBatch b) const {
    return static_cast<int>(arrived_.size() / 2) + input(stage, b);
  }

  ChunkNeighbour after(int s, int index) const {
    return chunk_after(shape_.schedule, shape_.pp, chunks_per_stage_, s, index);
  }
  ChunkNeighbour before(int s, int index) const {
    return chunk_before(shape_.schedule, shape_.pp, s, index);
  }

  bool is_ready(const Turn& turn) const {
    const auto there = [&](int number) { return number == Turn::kNone || arrived_[at(number)]; };
    return there(turn.awaited_output) && there(turn.awaited_gradient);
  }

  std::vector<Turn> turns_of(int s) {
    std::vector<Turn> turns;
    std::vector<int> gathers(at(chunks_per_stage_), Turn::kNone), left(at(chunks_per_stage_));
    std::vector<int>& order = sequence_.gather_order.emplace_back();
    std::vector<int>& held = sequence_.held.emplace_back();
    for (int i = 0; i < chunks_per_stage_; ++i) held.push_back(class_of(s, i));
    for (const PassSlot& slot : orders_[at(s)]) {
      if (makes_weight_gradient(slot.pass)) ++left[at(slot.backward_at().chunk)];
    }
    for (const PassSlot& slot : orders_[at(s)]) {
      Turn turn;
      turn.stage = s;
      turn.pass = slot.pass;
      if (runs_forward(slot.pass)) {
        set_forward(turn, slot.at);
        int& gather = gathers[at(slot.at.chunk)];
        if (gather == Turn::kNone) {
          turn.gather = gather = static_cast<int>(order.size());
          order.push_back(turn.ahead);
        }
      }
      if (slot.pass != Pass::forward) turn.behind = class_of(s, slot.backward_at().chunk);
      if (makes_input_gradient(slot.pass)) set_backward(turn, slot.backward_at());
      if (makes_weight_gradient(slot.pass)) {
        turn.last_gradient = --left[at(slot.backward_at().chunk)] == 0;
      }
      turns.push_back(turn);
    }
    return turns;
  }

  void set_forward(Turn& turn, ChunkBatch b) const {
    turn.ahead = class_of(turn.stage, b.chunk);
    const ChunkNeighbour from = before(turn.stage, b.chunk);
    if (from.exists) {
      turn.awaited_output = input(turn.stage, b);
      turn.receives = !from.stays;
    }
    const ChunkNeighbour to = after(turn.stage, b.chunk);
    turn.output_stays = !to.exists || to.stays;
    turn.output_to_next = to.next;
    turn.output =
        to.exists ? input(to.stage, {to.chunk, b.micro_batch}) : output_gradient(turn.stage, b);
  }

  void set_backward(Turn& turn, ChunkBatch b) const {
    turn.awaited_gradient = output_gradient(turn.stage, b);
    const ChunkNeighbour from = after(turn.stage, b.chunk);
    turn.receives = turn.receives || (from.exists && !from.stays);
    const ChunkNeighbour to = before(turn.stage, b.chunk);
    if (!to.exists) return;
    turn.gradient_stays = to.stays;
    turn.gradient_to_next = to.next;
    turn.gradient = output_gradient(to.stage, {to.chunk, b.micro_batch});
  }

  PassSequence& sequence_;
  const PipelineShape& shape_;
  int chunks_per_stage_, micro_batches_;
  std::vector<StageOrder> orders_;
  std::vector<int> class_of_;
  std::vector<bool> arrived_;
};

}  // namespace

PassSequence::PassSequence(PipelineShape pipeline, int micro_batches) : shape(std::move(pipeline)) {
  Sequencer(*this, micro_batches).run();
}

}  // namespace scalemodel
