// What the server knows, asked for once: rows by what has changed, curves until their run has grown.

/** @typedef {import("./types").Answer} Answer */
/** @typedef {import("./types").Row} Row */
/** @typedef {import("./types").Series} Series */

const MOST_CURVES = 2000;

/**
 * @param {string} path
 * @returns {Promise<any>}
 */
export async function ask(path) {
  return read(await fetch(new URL(path, document.baseURI)));
}

/** @param {Response} response */
async function read(response) {
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error ?? `the server answers ${response.status}`);
  return answer;
}

/** Runs, settings and tags as they were last heard of. */
export class Knowledge {
  /** @param {Promise<Response | null>} first the answer to `runs`, asked for as early as could be */
  constructor(first) {
    /** @type {Promise<Response | null> | null} */
    this.first = first;
    /** @type {Map<string, Row>} */
    this.rows = new Map();
    /** @type {Record<string, string[]>} */
    this.tagSets = {};
    /** @type {import("./types").SettingUse[]} */
    this.settings = [];
    /** @type {import("./types").TagUse[]} */
    this.tags = [];
    /** @type {Answer | null} */
    this.last = null;
    /** Grows with each change of rows. */
    this.version = 0;
    /** @type {Map<string, {mark: string, series: Series | null}>} */
    this.curves = new Map();
  }

  /** @returns {Promise<boolean>} whether rows have changed */
  async refresh() {
    const cursor = this.last?.cursor ?? "";
    const early = await this.first;
    this.first = null;
    /** @type {Answer} */
    const answer = early ? await read(early) : await ask(cursor ? `runs?cursor=${encodeURIComponent(cursor)}` : "runs");
    const isChanged = this.last === null || answer.is_full || answer.rows.length > 0 || answer.removed.length > 0
      || answer.settings !== null || answer.tags !== null;
    if (answer.is_full) {
      this.rows.clear();
      this.tagSets = {};
    }
    for (const row of answer.rows) this.rows.set(row.key, row);
    for (const key of answer.removed) this.rows.delete(key);
    Object.assign(this.tagSets, answer.tag_sets);
    this.settings = answer.settings ?? this.settings;
    this.tags = answer.tags ?? this.tags;
    this.last = answer;
    if (isChanged) this.version += 1;
    return isChanged;
  }

  /** @param {Row} row */
  tagsOf(row) {
    return this.tagSets[row.tag_set] ?? [];
  }

  /** The server's clock, in seconds since the epoch. */
  get now() {
    return this.last?.now ?? Date.now() / 1000;
  }

  /**
   * Returns the curves of a tag; an empty tag is each run's own loss. Only what has grown is asked for.
   *
   * @param {string} tag
   * @param {string[]} keys
   * @param {number} points
   * @returns {Promise<Series[]>}
   */
  async series(tag, keys, points) {
    /** @type {Map<string, Row[]>} */
    const wanted = new Map();
    for (const key of keys) {
      const row = this.rows.get(key);
      const own = row && (tag || row.loss?.tag);
      if (!row || !own || this.curves.get(curveName(own, key, points))?.mark === growth(row)) continue;
      wanted.set(own, [...(wanted.get(own) ?? []), row]);
    }
    await Promise.all([...wanted].map(async ([name, rows]) => {
      const marks = rows.map(growth);
      const query = new URLSearchParams([["tag", name], ["points", String(points)], ...rows.map((row) => ["key", row.key])]);
      const answer = await ask(`series?${query}`);
      /** @type {Map<string, Series>} */
      const found = new Map(answer.series.map((/** @type {Series} */ one) => [one.key, one]));
      rows.forEach((row, index) => {
        this.keep(curveName(name, row.key, points), { mark: marks[index], series: found.get(row.key) ?? null });
      });
    }));
    return keys.flatMap((key) => {
      const own = tag || this.rows.get(key)?.loss?.tag;
      return (own && this.curves.get(curveName(own, key, points))?.series) || [];
    });
  }

  /**
   * @param {string} name
   * @param {{mark: string, series: Series | null}} curve
   */
  keep(name, curve) {
    this.curves.delete(name);
    this.curves.set(name, curve);
    for (const oldest of this.curves.keys()) {
      if (this.curves.size <= MOST_CURVES) break;
      this.curves.delete(oldest);
    }
  }
}

/**
 * @param {string} tag
 * @param {string} key
 * @param {number} points
 */
function curveName(tag, key, points) {
  return JSON.stringify([tag, key, points]);
}

/**
 * What is another one when a run has grown.
 *
 * @param {Row} row
 */
export function growth(row) {
  return `${row.last_step} ${row.last_write} ${row.is_read} ${row.loss?.count ?? 0}`;
}
