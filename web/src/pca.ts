// Principal components: the two directions of the largest variance, and their shares of it. The covariance is never formed: its
// largest eigenvectors come from a small Krylov space, which is exact for few vectors.

export interface Plane {
  /** One point per vector. */
  points: [x: number, y: number][];
  /** The part of the variance in each direction, 0..1. */
  shares: [number, number];
}

const SPACE = 32;
const NOTHING = 1e-9;

/** `vectors` holds count x width numbers. */
export function pca(vectors: ArrayLike<number>, count: number, width: number): Plane {
  const centred = centre(vectors, count, width);
  const total = dot(centred, centred);
  const empty: Plane = { points: Array.from({ length: count }, () => [0, 0]), shares: [0, 0] };
  if (!(total > 0)) return empty;
  const covariance = (direction: Float64Array) => weightedSum(centred, project(centred, direction, count), width);
  const basis = krylov(covariance, width, Math.min(SPACE, count, width), total);
  const images = basis.map(covariance);
  const { values, vectors: combinations } = eigen(basis.map((one) => images.map((image) => dot(one, image))));
  const axes = combinations.slice(0, 2).map((combination) => {
    const direction = new Float64Array(width);
    basis.forEach((one, at) => addTo(direction, one, combination[at]));
    return project(centred, direction, count);
  });
  const [x, y = new Float64Array(count)] = axes.map(fixSign);
  return {
    points: empty.points.map((_, at) => [x[at], y[at]]),
    shares: [values[0] / total, Math.max(0, values[1] ?? 0) / total],
  };
}

function centre(vectors: ArrayLike<number>, count: number, width: number): Float64Array {
  const centred = Float64Array.from({ length: count * width }, (_, at) => vectors[at]);
  for (let column = 0; column < width; column++) {
    let mean = 0;
    for (let row = 0; row < count; row++) mean += centred[row * width + column] / count;
    for (let row = 0; row < count; row++) centred[row * width + column] -= mean;
  }
  return centred;
}

/** An orthonormal basis of a Krylov space; restarted with another vector where it ends early. */
function krylov(multiply: (vector: Float64Array) => Float64Array, width: number, size: number, scale: number): Float64Array[] {
  const basis: Float64Array[] = [];
  let candidate = anyVector(width, 0);
  let limit = NOTHING;
  for (let tries = 0; basis.length < size && tries < 3 * size; tries++) {
    for (let twice = 0; twice < 2; twice++) for (const one of basis) addTo(candidate, one, -dot(one, candidate));
    const length = Math.sqrt(dot(candidate, candidate));
    if (length > limit) {
      const one = candidate.map((number) => number / length);
      basis.push(one);
      candidate = multiply(one);
      limit = NOTHING * scale;
    } else {
      candidate = anyVector(width, tries + 1);
      limit = NOTHING;
    }
  }
  return basis;
}

/** Pseudorandom numbers, always the same. */
function anyVector(width: number, seed: number): Float64Array {
  let state = seed + 1;
  return Float64Array.from({ length: width }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32 - 0.5;
  });
}

/** Eigenvalues, the largest first, and eigenvectors of a small symmetric matrix, by Jacobi's rotations. */
export function eigen(symmetric: number[][]): { values: number[]; vectors: number[][] } {
  const size = symmetric.length;
  const a = symmetric.map((row) => [...row]);
  const v = a.map((_, row) => a.map((_unused, column) => Number(row === column)));
  const rotate = (p: number, q: number) => {
    if (Math.abs(a[p][q]) <= 1e-15 * Math.sqrt(Math.abs(a[p][p] * a[q][q]))) return false;
    const theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
    const tangent = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.hypot(theta, 1));
    const cosine = 1 / Math.hypot(tangent, 1);
    const sine = tangent * cosine;
    for (let k = 0; k < size; k++) [a[k][p], a[k][q]] = [cosine * a[k][p] - sine * a[k][q], sine * a[k][p] + cosine * a[k][q]];
    for (let k = 0; k < size; k++) [a[p][k], a[q][k]] = [cosine * a[p][k] - sine * a[q][k], sine * a[p][k] + cosine * a[q][k]];
    for (let k = 0; k < size; k++) [v[k][p], v[k][q]] = [cosine * v[k][p] - sine * v[k][q], sine * v[k][p] + cosine * v[k][q]];
    return true;
  };
  for (let sweep = 0, moved = true; moved && sweep < 50; sweep++) {
    moved = false;
    for (let p = 0; p < size; p++) for (let q = p + 1; q < size; q++) moved = rotate(p, q) || moved;
  }
  const order = a.map((_, at) => at).sort((one, other) => a[other][other] - a[one][one]);
  return { values: order.map((at) => a[at][at]), vectors: order.map((at) => v.map((row) => row[at])) };
}

/** The sign of a direction is arbitrary: put the farthest point on the positive side. */
function fixSign(coordinates: Float64Array): Float64Array {
  const farthest = coordinates.reduce((most, number) => (Math.abs(number) > Math.abs(most) * (1 + 1e-9) ? number : most), 0);
  return farthest < 0 ? coordinates.map((number) => -number) : coordinates;
}

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let at = 0; at < a.length; at++) sum += a[at] * b[at];
  return sum;
}

function addTo(sum: Float64Array, vector: Float64Array, times: number): void {
  for (let at = 0; at < sum.length; at++) sum[at] += times * vector[at];
}

/** The product of each row with a direction. */
function project(rows: Float64Array, direction: Float64Array, count: number): Float64Array {
  const width = direction.length;
  return Float64Array.from({ length: count }, (_, row) => dot(rows.subarray(row * width, (row + 1) * width), direction));
}

/** The weighted sum of the rows. */
function weightedSum(rows: Float64Array, weights: Float64Array, width: number): Float64Array {
  const sum = new Float64Array(width);
  weights.forEach((weight, row) => addTo(sum, rows.subarray(row * width, (row + 1) * width), weight));
  return sum;
}
