#include "mesh_comm_service/heat_map.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "support/table.h"

namespace rdmacomm::mesh {
namespace {

using programs::number_text;

// In pixels.
constexpr int kLeft = 64;
constexpr int kTop = 98;
constexpr int kLegendGap = 28;
constexpr int kLegendWidth = 16;
constexpr int kRight = 96;
constexpr int kBottom = 24;
constexpr int kLegendSteps = 24;

struct Range {
  double low = 0;
  double high = 0;
};

/// The range over all pairs with traffic.
Range range_of(const Matrix& matrix) {
  Range range;
  for (const auto& row : matrix) {
    for (const double value : row) {
      if (value <= 0) continue;
      range.low = range.high == 0 ? value : std::min(range.low, value);
      range.high = std::max(range.high, value);
    }
  }
  return range;
}

/// 0 for the slowest, 1 for the fastest.
double share(const Range& range, double value) {
  if (range.high <= range.low) return 1;
  return std::clamp((value - range.low) / (range.high - range.low), 0.0, 1.0);
}

struct Rgb {
  unsigned red, green, blue;
};

/// From pale yellow over green to dark blue. The lightness always decreases, so that the map is readable without
/// colors, too.
Rgb color_of(double share) {
  constexpr std::array<std::array<double, 3>, 5> kStops = {
      {{255, 247, 188}, {173, 221, 142}, {65, 171, 150}, {34, 94, 168}, {8, 29, 88}}};
  const double place = share * (kStops.size() - 1);
  const auto from = std::min(static_cast<std::size_t>(place), kStops.size() - 2);
  const double part = place - static_cast<double>(from);
  const auto mix = [&](std::size_t i) {
    return static_cast<unsigned>(std::lround(kStops[from][i] * (1 - part) + kStops[from + 1][i] * part)) & 0xffU;
  };
  return {mix(0), mix(1), mix(2)};
}

std::string color(double share) {
  const Rgb rgb = color_of(share);
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "#%02x%02x%02x", rgb.red, rgb.green, rgb.blue);
  return text.data();
}

/// Relative luminance, 0 to 1 (Web Content Accessibility Guidelines 2.1).
double luminance(const Rgb& rgb) {
  const auto linear = [](unsigned value) {
    const double share = value / 255.0;
    return share <= 0.04045 ? share / 12.92 : std::pow((share + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(rgb.red) + 0.7152 * linear(rgb.green) + 0.0722 * linear(rgb.blue);
}

/// Black or white, whichever has the higher contrast to the cell.
const char* ink_on(const Rgb& cell) {
  const double light = luminance(cell);
  const double by_white = 1.05 / (light + 0.05);
  const double by_black = (light + 0.05) / 0.05;
  return by_white >= by_black ? "#ffffff" : "#000000";
}

int cell_size(std::size_t nodes) {
  return std::clamp(640 / static_cast<int>(std::max<std::size_t>(nodes, 1)), 4, 64);
}

void draw_text(std::ostream& out, double x, double y, const std::string& anchor, int size, const std::string& fill,
               const std::string& text) {
  out << "<text x=\"" << x << "\" y=\"" << y << "\" text-anchor=\"" << anchor << "\" font-size=\"" << size
      << "\" fill=\"" << fill << "\">" << text << "</text>\n";
}

void draw_cell(std::ostream& out, const Range& range, std::size_t row, std::size_t column, double value, int size) {
  const double x = kLeft + static_cast<double>(column) * size;
  const double y = kTop + static_cast<double>(row) * size;
  const bool known = value > 0;
  const std::string fill = row == column ? "#e4e4e4" : known ? color(share(range, value)) : "url(#none)";
  out << "<rect x=\"" << x << "\" y=\"" << y << "\" width=\"" << size << "\" height=\"" << size << "\" fill=\"" << fill
      << "\">";
  if (row != column) {
    out << "<title>node " << row << " to node " << column << ": "
        << (known ? number_text(value) + " GB/s" : std::string("no traffic")) << "</title>";
  }
  out << "</rect>\n";
  if (!known || size < 36) return;
  draw_text(out, x + size / 2.0, y + size / 2.0 + 4, "middle", size >= 48 ? 12 : 10,
            ink_on(color_of(share(range, value))), number_text(value));
}

/// Draws the ranks along both axes; leaves some out if they do not fit.
void draw_ranks(std::ostream& out, std::size_t nodes, int size) {
  const std::size_t every = std::max<std::size_t>(1, static_cast<std::size_t>((15 + size - 1) / size));
  for (std::size_t rank = 0; rank < nodes; rank += every) {
    const double middle = static_cast<double>(rank) * size + size / 2.0;
    draw_text(out, kLeft + middle, kTop - 6, "middle", 11, "#404040", std::to_string(rank));
    draw_text(out, kLeft - 6, kTop + middle + 4, "end", 11, "#404040", std::to_string(rank));
  }
  const double half = static_cast<double>(nodes) * size / 2.0;
  draw_text(out, kLeft + half, kTop - 24, "middle", 12, "#404040", "to node");
  out << "<text transform=\"translate(" << kLeft - 38 << ',' << kTop + half
      << ") rotate(-90)\" text-anchor=\"middle\" font-size=\"12\" fill=\"#404040\">from node</text>\n";
}

void draw_legend(std::ostream& out, const Range& range, double x, double height) {
  const double step = height / kLegendSteps;
  for (int i = 0; i < kLegendSteps; ++i) {
    const double part = 1 - static_cast<double>(i) / (kLegendSteps - 1);
    out << "<rect x=\"" << x << "\" y=\"" << kTop + i * step << "\" width=\"" << kLegendWidth << "\" height=\""
        << step + 0.5 << "\" fill=\"" << color(part) << "\"/>\n";
  }
  draw_text(out, x + kLegendWidth + 6, kTop + 10, "start", 11, "#404040", number_text(range.high));
  draw_text(out, x + kLegendWidth + 6, kTop + height, "start", 11, "#404040", number_text(range.low));
  draw_text(out, x + kLegendWidth + 6, kTop + height / 2 + 4, "start", 11, "#404040", "GB/s");
}

std::string title_of(const ReportHead& head) {
  return std::to_string(head.nodes) + " nodes, " + op_name(head.terms.op) + ", GB/s of each pair";
}

std::string modes_of(const ReportHead& head) {
  return "--polling=" + head.polling + " --threads=" + head.threads;
}

}  // namespace

std::string heat_map_svg(const ReportHead& head, const Matrix& matrix) {
  const int size = cell_size(matrix.size());
  const double side = static_cast<double>(matrix.size()) * size;
  const double height = std::max(side, 96.0);
  const double width = std::max(kLeft + side + kLegendGap + kLegendWidth + kRight, 560.0);
  const Range range = range_of(matrix);
  std::ostringstream out;
  const double whole_height = kTop + height + kBottom;
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << width << "\" height=\"" << whole_height
      << "\" viewBox=\"0 0 " << width << ' ' << whole_height << "\" font-family=\"sans-serif\">\n"
      << "<title>" << title_of(head) << "</title>\n"
      << "<defs><pattern id=\"none\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
         "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#ffffff\"/><rect width=\"2\" "
         "height=\"6\" fill=\"#d07070\"/></pattern></defs>\n"
      << "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  draw_text(out, 16, 22, "start", 15, "#202020", title_of(head));
  draw_text(out, 16, 40, "start", 11, "#606060", head.terms.to_text());
  draw_text(out, 16, 54, "start", 11, "#606060", modes_of(head));
  for (std::size_t row = 0; row < matrix.size(); ++row) {
    for (std::size_t column = 0; column < matrix.size(); ++column) {
      draw_cell(out, range, row, column, row == column ? 0 : matrix[row][column], size);
    }
  }
  draw_ranks(out, matrix.size(), size);
  draw_legend(out, range, kLeft + side + kLegendGap, height);
  out << "</svg>\n";
  return out.str();
}

std::string heat_map_html(const ReportHead& head, const Matrix& matrix) {
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" + title_of(head) +
         "</title></head>\n<body>\n" + heat_map_svg(head, matrix) + "</body></html>\n";
}

std::string heat_map_for(const std::string& path, const ReportHead& head, const Matrix& matrix) {
  const bool page = path.ends_with(".html") || path.ends_with(".htm");
  return page ? heat_map_html(head, matrix) : heat_map_svg(head, matrix);
}

}  // namespace rdmacomm::mesh
