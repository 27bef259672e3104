// The shifted all-to-all of `fabric_bench tree` on SimGrid: flows that share links max-min fairly, no packets.
//
// simgrid_tree HOSTS_PER_LEAF LEAVES BYTES STRIDE default|plain: every host i sends BYTES to host i+1, then i+1+STRIDE, ...,
// one flow at a time, over a two-level tree of full bisection. `default`: the network model that SimGrid has without being
// asked. `plain`: its cheapest, without acknowledgements on the way back, TCP windows and factors on latency and bandwidth.
// Prints one line of `name value` pairs.

#include <simgrid/s4u.hpp>

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

namespace {

// 105 ns and 100 Gb/s for each cable.
constexpr double kLatency = 105e-9;
constexpr double kBandwidth = 12.5e9;

uint64_t g_messages = 0;

uint64_t ProcessorNs() {
  timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return used.tv_sec * 1000000000ull + used.tv_nsec;
}

void SendToAll(const std::vector<sg4::Host*>& hosts, std::size_t self, uint64_t bytes, unsigned stride) {
  for (std::size_t shift = 1; shift < hosts.size(); shift += stride) {
    sg4::Comm::sendto(hosts[self], hosts[(self + shift) % hosts.size()], bytes);
    g_messages++;
  }
}

}  // namespace

int main(int argc, char** argv) {
  sg4::Engine engine(&argc, argv);
  if (argc != 6) {
    std::cerr << "usage: simgrid_tree HOSTS_PER_LEAF LEAVES BYTES STRIDE default|plain\n";
    return 2;
  }
  const unsigned per_leaf = std::atoi(argv[1]);
  const unsigned leaves = std::atoi(argv[2]);
  const uint64_t bytes = std::strtoull(argv[3], nullptr, 10);
  const unsigned stride = std::atoi(argv[4]);
  if (std::string(argv[5]) == "plain") {
    sg4::Engine::set_config("network/model:CM02");
    sg4::Engine::set_config("network/crosstraffic:0");
    sg4::Engine::set_config("network/TCP-gamma:0");
  }
  const uint64_t begin = ProcessorNs();
  std::vector<sg4::Host*> hosts;
  const sg4::ClusterCallbacks callbacks(
      [&hosts](sg4::NetZone* zone, const std::vector<unsigned long>&, unsigned long id) {
        hosts.push_back(zone->create_host("h" + std::to_string(id), 1e9)->seal());
        return std::make_pair(hosts.back()->get_netpoint(), static_cast<simgrid::kernel::routing::NetPoint*>(nullptr));
      });
  sg4::create_fatTree_zone("tree", nullptr, {2, {per_leaf, leaves}, {1, per_leaf}, {1, 1}}, callbacks, kBandwidth,
                           kLatency, sg4::Link::SharingPolicy::SPLITDUPLEX)
      ->seal();
  for (std::size_t self = 0; self < hosts.size(); self++) {
    sg4::Actor::create("sender", hosts[self], [&hosts, self, bytes, stride] { SendToAll(hosts, self, bytes, stride); });
  }
  const uint64_t built = ProcessorNs();
  engine.run();
  const uint64_t end = ProcessorNs();
  std::cout << "messages " << g_messages << " cpu_ns " << end - built << " build_ns " << built - begin << " end_ns "
            << static_cast<uint64_t>(engine.get_clock() * 1e9) << std::endl;
  // Taking the simulation apart would be work that nobody measures.
  std::_Exit(0);
}
