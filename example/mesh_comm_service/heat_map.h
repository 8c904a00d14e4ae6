// heat_map.h - draws the matrix as a picture.
#pragma once

#include <string>

#include "mesh_comm_service/report.h"

namespace rdmacomm::mesh {

/// An SVG picture for browsers and HTML pages. It has a square for each ordered pair of nodes; a darker one is faster.
/// The figure is printed in the square if it fits, and is always the tool tip. The colors range from the slowest to the
/// fastest pair; pairs without traffic are hatched.
[[nodiscard]] std::string heat_map_svg(const ReportHead& head, const Matrix& matrix);
/// The same as a separate HTML page.
[[nodiscard]] std::string heat_map_html(const ReportHead& head, const Matrix& matrix);
/// The content for a file of that name: HTML for *.html and *.htm, else SVG.
[[nodiscard]] std::string heat_map_for(const std::string& path, const ReportHead& head, const Matrix& matrix);

}  // namespace rdmacomm::mesh
