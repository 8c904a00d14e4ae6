#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "mesh_comm_service/heat_map.h"
#include "mesh_comm_service/report.h"

namespace rdmacomm::mesh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

ReportHead head_of(int nodes) {
  return {.terms = {.op = Operation::kSend, .size = 100, .total = 1000, .depth = 4, .verify = true},
          .nodes = nodes,
          .polling = "busy",
          .threads = "sharded"};
}

PeerResult traffic(std::uint32_t rank, std::uint64_t bytes, std::uint64_t elapsed_ns) {
  return {.rank = rank,
          .messages = bytes / 100,
          .bytes = bytes,
          .counted_messages = bytes / 100,
          .counted_bytes = bytes,
          .elapsed_ns = elapsed_ns};
}

/// Nodes 0 and 2 of three; node 1 was lost.
std::vector<NodeResult> some_results() {
  NodeResult zero{.rank = 0, .elapsed_ns = 2000, .cpu_us = 8, .queue_pairs = 2};
  zero.peers = {traffic(1, 1000, 1000), traffic(2, 3000, 2000)};
  zero.peers[0].lost = true;
  NodeResult two{.rank = 2, .elapsed_ns = 1000, .cpu_us = 2, .queue_pairs = 2};
  two.peers = {traffic(0, 2000, 1000), traffic(1, 0, 0)};
  two.peers[1].lost = true;
  return {zero, two};
}

TEST(NodeResult, AddsItsPeersUp) {
  const NodeResult node = some_results()[0];
  EXPECT_EQ(node.bytes(), 4000U);
  EXPECT_EQ(node.messages(), 40U);
  EXPECT_DOUBLE_EQ(node.gb_per_s(), 2.0);
  EXPECT_DOUBLE_EQ(node.mops_per_s(), 20.0);
}

TEST(NodeResult, IsAsFairAsItsSlowestPeer) {
  NodeResult node;
  EXPECT_EQ(node.fairness(), 1);
  node.peers = {traffic(1, 1000, 1000), traffic(2, 4000, 1000), traffic(3, 1, 1000)};
  node.peers[2].lost = true;
  EXPECT_DOUBLE_EQ(node.fairness(), 0.25);
}

TEST(Matrix, HasARowForEachNodeAndZeroForUnknownValues) {
  EXPECT_THAT(rate_matrix(some_results(), 3),
              ElementsAre(ElementsAre(0, 1.0, 1.5), ElementsAre(0, 0, 0), ElementsAre(2.0, 0, 0)));
  EXPECT_THAT(missing_ranks(some_results(), 3), ElementsAre(1));
}

TEST(Matrix, IgnoresUnknownRanks) {
  EXPECT_THAT(rate_matrix(some_results(), 2), ElementsAre(ElementsAre(0, 1.0), ElementsAre(0, 0)));
}

TEST(NodeReport, HasALineForEachPeerAndTheirSum) {
  const std::string text = node_report(head_of(3), some_results()[0]);
  EXPECT_THAT(text, testing::ContainsRegex("\n1 lost +10 +1000 +10 +1\\.000"));
  EXPECT_THAT(text, testing::ContainsRegex("\n2 +30 +3000 +30 +1\\.500"));
  EXPECT_THAT(text, testing::ContainsRegex("\nall +40 +4000 +40 +2\\.000"));
}

TEST(MeshReport, HasTheMatrixTheSumsAndTheMissingNodes) {
  const std::string text = mesh_report(head_of(3), some_results());
  EXPECT_THAT(text, testing::ContainsRegex("\n0 +- +1\\.000 +1\\.500\n1 +0 +- +0\n2 +2\\.000 +0 +-\n"));
  EXPECT_THAT(text, HasSubstr("6000 bytes in 60 messages, 3.000 GB/s"));
  EXPECT_THAT(text, HasSubstr("verified: 60 messages, 0 of them"));
  EXPECT_THAT(text, HasSubstr("no results of node 1\n"));
  EXPECT_THAT(text, HasSubstr("latency (us) p50 -, p99 -, p99.9 -, max -;"));
}

TEST(MeshReport, FitsATerminal) {
  for (const std::size_t width : {std::size_t{40}, std::size_t{80}, std::size_t{120}}) {
    ReportHead head = head_of(20);
    head.width = width;
    NodeResult node{.rank = 0, .elapsed_ns = 2000};
    for (std::uint32_t rank = 1; rank < 20; ++rank) node.peers.push_back(traffic(rank, 123456, 1000));
    std::istringstream matrix(mesh_report(head, {node}));
    std::string line;
    int rows = 0;
    while (std::getline(matrix, line) && !line.starts_with("all nodes")) {
      EXPECT_LE(line.size(), std::max(width, std::size_t{50})) << line;
      rows += line.starts_with("19 ") ? 1 : 0;
    }
    EXPECT_EQ(rows, width == 40 ? 5 : width == 80 ? 3 : 2);
  }
  ReportHead head = head_of(3);
  head.width = 80;
  std::istringstream report(node_report(head, some_results()[0]));
  for (std::string line; std::getline(report, line);) {
    if (line.starts_with("to ") || line.starts_with("1 ") || line.starts_with("all ")) {
      EXPECT_LE(line.size(), 80U) << line;
    }
  }
}

TEST(MeshReport, HasPercentilesIfTheSamplesSuffice) {
  std::vector<NodeResult> results = some_results();
  for (int i = 0; i < 99; ++i) results[0].latency_ns.add(2000);
  EXPECT_THAT(mesh_report(head_of(3), results), HasSubstr("latency (us) p50 2.000, p99 -, p99.9 -, max 2.000;"));
  results[1].latency_ns.add(2000);
  EXPECT_THAT(mesh_report(head_of(3), results), HasSubstr("latency (us) p50 2.000, p99 2.000, p99.9 -, max 2.000;"));
}

TEST(MeshJson, ContainsAllFigures) {
  const auto json = nlohmann::json::parse(mesh_json(head_of(3), some_results()));
  EXPECT_EQ(json["op"], "send");
  EXPECT_EQ(json["bytes"], 6000);
  EXPECT_EQ(json["total"], 1000);
  EXPECT_EQ(json["matrix_GB_per_s"][2][0], 2.0);
  EXPECT_EQ(json["missing"], nlohmann::json::array({1}));
  EXPECT_EQ(json["by_node"][1]["rank"], 2);
  EXPECT_EQ(json["by_node"][0]["peers"][0]["lost"], true);
  EXPECT_EQ(json["by_node"][0]["peers"][1]["arrived_bytes"], 3000);
  EXPECT_DOUBLE_EQ(json["cpu_ns_per_message"].get<double>(), 10e3 / 60);
}

TEST(HeatMap, HasASquareForEachPair) {
  const std::string svg = heat_map_svg(head_of(3), rate_matrix(some_results(), 3));
  EXPECT_THAT(svg, testing::ContainsRegex("<svg [^>]*width=\"560\" [^>]*viewBox=\"0 0 560 "));
  EXPECT_THAT(svg, HasSubstr("node 0 to node 2: 1.500 GB/s"));
  EXPECT_THAT(svg, HasSubstr("node 1 to node 0: no traffic"));
  EXPECT_THAT(svg, Not(HasSubstr("node 1 to node 1")));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(HeatMap, OfTheFastestPairIsTheDarkest) {
  const std::string svg = heat_map_svg(head_of(3), rate_matrix(some_results(), 3));
  EXPECT_THAT(svg, testing::ContainsRegex("fill=\"#081d58\"><title>node 2 to node 0"));
  EXPECT_THAT(svg, testing::ContainsRegex("fill=\"#fff7bc\"><title>node 0 to node 1"));
}

double contrast(unsigned one, unsigned other) {
  const auto light = [](unsigned rgb) {
    const auto linear = [](unsigned value) {
      return value <= 10 ? value / 255.0 / 12.92 : std::pow((value / 255.0 + 0.055) / 1.055, 2.4);
    };
    return 0.2126 * linear(rgb >> 16 & 255) + 0.7152 * linear(rgb >> 8 & 255) + 0.0722 * linear(rgb & 255) + 0.05;
  };
  return std::max(light(one), light(other)) / std::min(light(one), light(other));
}

TEST(HeatMap, HasNumbersThatCanBeReadInEachCell) {
  Matrix matrix(10, std::vector<double>(10));
  for (std::size_t i = 0; i < 100; ++i) matrix[i / 10][i % 10] = 1.0 + static_cast<double>(i);
  const std::string svg = heat_map_svg(head_of(10), matrix);
  const std::regex cell("fill=\"#(\\w{6})\"><title>node[^\n]*\n<text [^>]*fill=\"#(\\w{6})\"");
  int cells = 0;
  for (std::sregex_iterator each(svg.begin(), svg.end(), cell), end; each != end; ++each, ++cells) {
    const auto fill = static_cast<unsigned>(std::stoul((*each)[1], nullptr, 16));
    const auto ink = static_cast<unsigned>(std::stoul((*each)[2], nullptr, 16));
    EXPECT_GE(contrast(fill, ink), 4.5) << each->str();  // of the Web Content Accessibility Guidelines, for small text
  }
  EXPECT_EQ(cells, 90);
}

TEST(HeatMap, OfManyNodesStaysAPicture) {
  const Matrix matrix(300, std::vector<double>(300, 1.0));
  EXPECT_THAT(heat_map_svg(head_of(300), matrix), HasSubstr("node 299 to node 298"));
  EXPECT_THAT(heat_map_svg(head_of(2), Matrix(2, std::vector<double>(2))), Not(HasSubstr("nan")));
}

// 560 pixels. A letter of size 11 needs 7 at most.
TEST(HeatMap, HasLinesThatFitItsWidth) {
  ReportHead head{
      .terms = {.op = Operation::kWriteImm, .size = 1000001, .duration_us = 86399999999, .depth = 4096, .verify = true},
      .nodes = 2,
      .polling = "adaptive",
      .threads = "shared-cq"};
  std::istringstream svg(heat_map_svg(head, Matrix(2, std::vector<double>(2))));
  for (std::string line; std::getline(svg, line);) {
    if (!line.starts_with("<text x=\"16\"")) continue;
    const auto begin = line.find('>') + 1;
    EXPECT_LE(line.rfind('<') - begin, (560U - 16) / 7) << line;
  }
}

TEST(HeatMap, IsAPageIfTheFileIsHtml) {
  const Matrix matrix = rate_matrix(some_results(), 3);
  EXPECT_THAT(heat_map_for("a.html", head_of(3), matrix), HasSubstr("<!DOCTYPE html>"));
  EXPECT_THAT(heat_map_for("a.svg", head_of(3), matrix), Not(HasSubstr("DOCTYPE")));
}

}  // namespace
}  // namespace rdmacomm::mesh
