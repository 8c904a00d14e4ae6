// heat_map.h - the matrix as a picture.
#pragma once

#include <string>

#include "mesh_comm_service/report.h"

namespace rdmacomm::mesh {

/// An SVG picture, which browsers show and HTML pages take in: a square for each ordered pair of nodes, the darker the
/// faster, with its figure in it where there is room, and always as a tool tip. From the slowest pair to the fastest;
/// pairs without traffic are hatched.
[[nodiscard]] std::string heat_map_svg(const ReportHead& head, const Matrix& matrix);
/// The same as an HTML page of its own.
[[nodiscard]] std::string heat_map_html(const ReportHead& head, const Matrix& matrix);
/// What belongs into a file of that name: HTML for *.html and *.htm, else SVG.
[[nodiscard]] std::string heat_map_for(const std::string& path, const ReportHead& head, const Matrix& matrix);

}  // namespace rdmacomm::mesh
