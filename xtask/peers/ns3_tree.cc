// The shifted all-to-all of `fabric_bench tree` on ns-3: point-to-point links, UDP, static routes.
//
// ns3_tree HOSTS_PER_LEAF LEAVES PACKETS STRIDE global|by-hand: every host i sends PACKETS packets of 4096 bytes to host
// i+1, then i+1+STRIDE, ... at line rate, over a two-level tree of full bisection. One event sends a packet, and no queue
// discipline lies above a device. `global`: routes as ns-3's manual makes them, of equal ones a random one for each packet.
// `by-hand`: addresses laid out so that no node has more routes than it has ports.
// Prints one line of `name value` pairs.

#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-module.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

using namespace ns3;

namespace {

constexpr uint32_t kPayload = 4096;
// Headers of UDP, IPv4 and PPP.
constexpr uint32_t kOnWire = kPayload + 8 + 20 + 2;
constexpr uint16_t kPort = 9;
// 8 bits at 100 Gb/s are 80 ps.
constexpr uint64_t kSerialPs = kOnWire * 80;

uint64_t g_received = 0;
uint64_t g_end_ns = 0;

uint64_t ProcessorNs() {
  timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return used.tv_sec * 1000000000ull + used.tv_nsec;
}

void Receive(Ptr<Socket> socket) {
  while (socket->Recv()) {
    g_received++;
  }
  g_end_ns = Simulator::Now().GetNanoSeconds();
}

// A host that sends its next packet whenever the one before has left.
struct Sender {
  Ptr<Socket> socket;
  uint32_t self;
  uint32_t packets;
  uint32_t stride;
  uint64_t sent = 0;
  const std::vector<Ipv4Address>* addresses;

  void Next() {
    uint32_t hosts = addresses->size();
    uint32_t shift = 1 + sent / packets * stride;
    if (shift >= hosts) {
      return;
    }
    socket->SendTo(Create<Packet>(kPayload), 0, InetSocketAddress((*addresses)[(self + shift) % hosts], kPort));
    sent++;
    Simulator::Schedule(PicoSeconds(kSerialPs), &Sender::Next, this);
  }
};

uint32_t AddInterface(Ptr<NetDevice> device, Ipv4Address address, Ipv4Mask mask) {
  Ptr<Ipv4> ipv4 = device->GetNode()->GetObject<Ipv4>();
  uint32_t interface = ipv4->AddInterface(device);
  ipv4->AddAddress(interface, Ipv4InterfaceAddress(address, mask));
  ipv4->SetUp(interface);
  return interface;
}

// What the tree is made of.
struct Tree {
  uint32_t per_leaf, leaves, spines, hosts;
  NodeContainer host_nodes, leaf_nodes, spine_nodes;
  PointToPointHelper cable;
};

Ptr<Ipv4StaticRouting> StaticRouting(Ptr<Node> node) {
  return Ipv4StaticRoutingHelper().GetStaticRouting(node->GetObject<Ipv4>());
}

// Host h of leaf l is 10.s.l.i where s is the spine that leads down to it: a leaf has one route for each of its hosts and
// one for each spine, a spine one for each leaf.
std::vector<Ipv4Address> CableByHand(Tree& tree) {
  const Ipv4Mask alone = Ipv4Mask::GetOnes();
  std::vector<Ipv4Address> addresses;
  for (uint32_t host = 0; host < tree.hosts; host++) {
    const uint32_t leaf = host / tree.per_leaf, spine = host % tree.spines;
    const Ipv4Address address((10u << 24) | (spine << 16) | (leaf << 8) | (1 + host % tree.per_leaf));
    addresses.push_back(address);
    NetDeviceContainer ends = tree.cable.Install(tree.host_nodes.Get(host), tree.leaf_nodes.Get(leaf));
    const uint32_t up = AddInterface(ends.Get(0), address, alone);
    const uint32_t down = AddInterface(ends.Get(1), Ipv4Address((11u << 24) | host), alone);
    StaticRouting(tree.host_nodes.Get(host))->SetDefaultRoute(Ipv4Address::GetZero(), up);
    StaticRouting(tree.leaf_nodes.Get(leaf))->AddHostRouteTo(address, down);
  }
  for (uint32_t leaf = 0; leaf < tree.leaves; leaf++) {
    for (uint32_t spine = 0; spine < tree.spines; spine++) {
      NetDeviceContainer ends = tree.cable.Install(tree.leaf_nodes.Get(leaf), tree.spine_nodes.Get(spine));
      const uint32_t number = leaf * tree.spines + spine;
      const uint32_t up = AddInterface(ends.Get(0), Ipv4Address((12u << 24) | number), alone);
      const uint32_t down = AddInterface(ends.Get(1), Ipv4Address((13u << 24) | number), alone);
      const Ipv4Address by_spine((10u << 24) | (spine << 16));
      const Ipv4Address by_leaf((10u << 24) | (spine << 16) | (leaf << 8));
      StaticRouting(tree.leaf_nodes.Get(leaf))->AddNetworkRouteTo(by_spine, Ipv4Mask("255.255.0.0"), up);
      StaticRouting(tree.spine_nodes.Get(spine))->AddNetworkRouteTo(by_leaf, Ipv4Mask("255.255.255.0"), down);
    }
  }
  return addresses;
}

// A small network for each cable, routes computed by ns-3.
std::vector<Ipv4Address> CableGlobal(Tree& tree) {
  const Ipv4Mask pair("255.255.255.252");
  uint32_t network = 10u << 24;
  auto connect = [&](Ptr<Node> below, Ptr<Node> above) {
    NetDeviceContainer ends = tree.cable.Install(below, above);
    const Ipv4Address address(network + 1);
    AddInterface(ends.Get(0), address, pair);
    AddInterface(ends.Get(1), Ipv4Address(network + 2), pair);
    network += 4;
    return address;
  };
  std::vector<Ipv4Address> addresses;
  for (uint32_t host = 0; host < tree.hosts; host++) {
    addresses.push_back(connect(tree.host_nodes.Get(host), tree.leaf_nodes.Get(host / tree.per_leaf)));
  }
  for (uint32_t leaf = 0; leaf < tree.leaves; leaf++) {
    for (uint32_t spine = 0; spine < tree.spines; spine++) {
      connect(tree.leaf_nodes.Get(leaf), tree.spine_nodes.Get(spine));
    }
  }
  Ipv4GlobalRoutingHelper::PopulateRoutingTables();
  return addresses;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: ns3_tree HOSTS_PER_LEAF LEAVES PACKETS STRIDE global|by-hand\n";
    return 2;
  }
  Tree tree;
  tree.per_leaf = std::atoi(argv[1]);
  tree.leaves = std::atoi(argv[2]);
  tree.spines = tree.per_leaf;
  tree.hosts = tree.per_leaf * tree.leaves;
  const uint32_t packets = std::atoi(argv[3]);
  const uint32_t stride = std::atoi(argv[4]);
  const bool by_hand = std::string(argv[5]) == "by-hand";
  const uint64_t begin = ProcessorNs();
  // Times below a nanosecond: without them a rate of 100 Gb/s is not one.
  Time::SetResolution(Time::PS);
  Config::SetDefault("ns3::PointToPointNetDevice::Mtu", UintegerValue(9000));
  Config::SetDefault("ns3::Ipv4GlobalRouting::RandomEcmpRouting", BooleanValue(true));

  tree.host_nodes.Create(tree.hosts);
  tree.leaf_nodes.Create(tree.leaves);
  tree.spine_nodes.Create(tree.spines);
  tree.cable.SetDeviceAttribute("DataRate", DataRateValue(DataRate("100Gbps")));
  tree.cable.SetChannelAttribute("Delay", TimeValue(NanoSeconds(105)));
  InternetStackHelper stack;
  if (by_hand) {
    stack.SetRoutingHelper(Ipv4StaticRoutingHelper());
  }
  stack.SetIpv6StackInstall(false);
  stack.Install(tree.host_nodes);
  stack.Install(tree.leaf_nodes);
  stack.Install(tree.spine_nodes);
  const std::vector<Ipv4Address> addresses = by_hand ? CableByHand(tree) : CableGlobal(tree);

  std::vector<Sender> senders(tree.hosts);
  for (uint32_t host = 0; host < tree.hosts; host++) {
    Ptr<Node> node = tree.host_nodes.Get(host);
    Ptr<Socket> sink = Socket::CreateSocket(node, UdpSocketFactory::GetTypeId());
    sink->Bind(InetSocketAddress(Ipv4Address::GetAny(), kPort));
    sink->SetRecvCallback(MakeCallback(&Receive));
    Sender& sender = senders[host];
    sender.socket = Socket::CreateSocket(node, UdpSocketFactory::GetTypeId());
    sender.socket->Bind();
    sender.socket->ShutdownRecv();
    sender.self = host;
    sender.packets = packets;
    sender.stride = stride;
    sender.addresses = &addresses;
    Simulator::ScheduleWithContext(node->GetId(), PicoSeconds(1), &Sender::Next, &sender);
  }
  const uint64_t built = ProcessorNs();
  Simulator::Run();
  const uint64_t end = ProcessorNs();
  uint64_t injected = 0;
  for (const Sender& sender : senders) {
    injected += sender.sent;
  }
  std::cout << "packets " << g_received << " injected " << injected << " events " << Simulator::GetEventCount()
            << " cpu_ns " << end - built << " build_ns " << built - begin << " end_ns " << g_end_ns << std::endl;
  // Taking the simulation apart would be work that nobody measures.
  std::_Exit(0);
}
