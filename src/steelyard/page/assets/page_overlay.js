// The layer over the heat map: hatching where replies were rejected, dots where a client was absent.
// It is drawn for the part in view, so that it is as fine after zooming as before.

function overlay(cells, order, edges, layout, outer, height, groups) {
  const [left, right] = layout.xaxis.range;
  const [bottom, top] = layout.yaxis.range;
  const grain = Math.max(1, Math.min(2, devicePixelRatio));
  const width = Math.max(100, outer - layout.margin.l - layout.margin.r);
  const canvas = Object.assign(
    document.createElement("canvas"),
    { width: Math.round(width * grain), height: Math.round(height * grain) }
  );
  const context = canvas.getContext("2d");
  const sides = edges.map((edge) => ((edge - left) / (right - left)) * canvas.width);
  const absent = mask(cells, order, (k, c) => missing(cells.weight[k][c]) && !cells.rejected[k][c]);
  const refused = mask(cells, order, (k, c) => cells.rejected[k][c] > 0);
  for (const [kind, cellsMask] of [["dots", absent], ["hatch", refused]]) {
    if (!cellsMask) continue;
    const layer = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
    paintMask(layer.getContext("2d"), cellsMask, sides, top + 0.5, bottom - top, order.length);
    const paint = layer.getContext("2d");
    paint.globalCompositeOperation = "source-in";
    paint.fillStyle = paint.createPattern(tile(kind, grain), "repeat");
    paint.fillRect(0, 0, layer.width, layer.height);
    context.drawImage(layer, 0, 0);
  }
  context.fillStyle = colour("ink");
  const rowHeight = canvas.height / (bottom - top);
  groups.forEach((group, row) => row && group !== groups[row - 1] && context.fillRect(
    0, (row - 0.5 - top) * rowHeight - grain, canvas.width, 2 * grain
  ));
  return {
    source: canvas.toDataURL(), xref: "x", yref: "y", x: left, y: top, sizex: right - left, sizey: bottom - top,
    sizing: "stretch", layer: "above", name: refused ? "hatched" : "plain"
  };
}

// One pixel per cell: opaque where `flag` holds. Null where it holds nowhere.
function mask({ bins }, order, flag) {
  const [columns, rows] = [bins.length, order.length];
  const pixels = new ImageData(columns, rows);
  let any = false;
  for (let row = 0; row < rows; row++)
    for (let k = 0; k < columns; k++)
      if (flag(k, order[row])) {
        pixels.data[4 * (row * columns + k) + 3] = 255;
        any = true;
      }
  if (!any) return null;
  const canvas = Object.assign(document.createElement("canvas"), { width: columns, height: rows });
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}

// Columns are as wide as their rounds. Cells thinner than a pixel are averaged, so that a lone one stays visible.
function paintMask(context, cells, sides, firstRow, rowsInView, rows) {
  const tall = context.canvas.height / rowsInView;
  context.imageSmoothingEnabled = tall < 1;
  for (let k = 0; k < cells.width; k++) {
    const [from, to] = [Math.round(sides[k]), Math.round(sides[k + 1])];
    if (to < 0 || from > context.canvas.width) continue;
    context.drawImage(cells, k, 0, 1, rows, from, -firstRow * tall, Math.max(1, to - from), rows * tall);
  }
}

function tile(kind, grain) {
  const size = Math.round((kind === "hatch" ? 6 : 7) * grain);
  const canvas = Object.assign(document.createElement("canvas"), { width: size, height: size });
  const context = canvas.getContext("2d");
  if (kind === "hatch") {
    Object.assign(context, { strokeStyle: colour("hatch"), lineWidth: 1.5 * grain, lineCap: "square" });
    for (const shift of [-size, 0, size]) {
      context.moveTo(shift, size);
      context.lineTo(shift + size, 0);
    }
    context.stroke();
  } else {
    context.fillStyle = colour("dots");
    context.beginPath();
    context.arc(size / 2, size / 2, 0.9 * grain, 0, 7);
    context.fill();
  }
  return canvas;
}
