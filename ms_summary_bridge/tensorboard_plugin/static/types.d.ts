// What the server answers, as the first lines of run_table.py describe it, and what the page makes of it.

export type Setting = number | string | boolean;

export interface Loss {
  tag: string; last: number | string; last_step: number; best: number | null; best_step: number | null;
  count: number; nonfinite: number; spark: [number, number | null][];
}
export interface Evaluation { value: number | string; step: number; best: number | string | null; best_step: number | null }
export interface Health {
  level: "ok" | "warning" | "critical"; text: string; alarms: number; critical: number; nonfinite: number;
  nonfinite_tags: number; nonfinite_step: number | null; damaged: number; problems: string[];
}
export interface Row {
  key: string; name: string; group: string; directory: string; formats: string[]; ranks: number; is_read: boolean;
  state: string; life: string; evidence: string[]; last_step: number; first_time: number; last_write: number;
  duration_secs: number; rate: Record<string, number>; loss: Loss | null; eval: Record<string, Evaluation>;
  health: Health; settings: Record<string, Setting>; tag_set: string; links: { runs: string[]; dashboards: string[] };
}
export interface SettingUse { name: string; known: number; distinct: number; usual: Setting }
export interface TagUse { tag: string; runs: number }
export interface Advice { title: string; text: string; examples: { title: string; code: string }[] }
export interface Answer {
  cursor: string; is_full: boolean; rows: Row[]; removed: string[]; tag_sets: Record<string, string[]>;
  settings: SettingUse[] | null; tags: TagUse[] | null; is_known: boolean; unread: number; left_out: number;
  problems: string[]; fault: string; source: string; now: number; advice: Advice | null;
}
export interface Happening {
  kind: string; step: number | null; wall_time: number; text: string; severity: string; tag: string;
}
export interface Metric {
  tag: string; count: number; nonfinite: number; first_step: number; last_step: number; last: number | string;
  min: number | null; min_step: number | null; max: number | null; max_step: number | null; mean: number | null;
}
export interface NonFiniteChart {
  tag: string; kind: string; total: number; affected: number; nan: number; pos_inf: number; neg_inf: number;
  first_step: number; last_step: number; points: [number, number, number][];
}
export interface Rank {
  rank: number; host: string; state: string; life: string; evidence: string[]; step: number;
  loss: number | string | null; loss_step: number | null; rate: number | null; rate_unit: string;
  memory: number | null; last_time: number;
}
export interface RankOfAggregate {
  rank: number; values: number; last_step: number | null; gaps: number; last_share: number;
  first_bad: { tag: string; step: number; value: string } | null;
}
export interface Aggregate { path: string; tags: string[]; missing: number[]; ranks: RankOfAggregate[] }
export interface Operation { name: string; parameters: [string, string][] }
export interface Stage extends Operation { operations: Operation[]; sampler: Operation | null; branches: Stage[][] }
export interface Alert {
  rule: string | null; severity: string | null; step: number | string | null; rank: number | null; wall_time: number;
  message: string | null; advice: string | null;
}
export interface Profile { number: number; name: string; directory: string; path: string; bytes: number }
export interface ProfileTimes {
  rank: number | null; steps: number; source: string; problems: string[];
  parts: { name: string; mean_us: number; share: number | null }[];
  operators: { type: string; core: string; count: number; total_us: number; share: number }[];
}
export interface Reading {
  damaged: { file: string; start: number; end: number; reason: string }[]; damaged_count: number;
  incomplete: { file: string; offset: number }[]; lost: string[]; problems: string[];
}
export interface Journal {
  directory: string; alerts: Alert[]; alert_counts: Record<string, number>; warning_counts: Record<string, number>;
  end: string; stop: string;
}
export interface Run {
  row: Row; directory: string; files: number; bytes: number; events: number; fault: string;
  lineage: {
    parts: string[]; hparams: [string, Setting][]; metrics: [string, Setting][]; status: string; start_time: number;
    end_time: number;
  };
  pipeline: { stages: Stage[]; error: string };
  nonfinite: { tags: number; affected: number; charts: NonFiniteChart[] };
  metrics: Metric[]; timeline: Happening[]; ranks: Rank[]; heat_tags: string[]; profiles: Profile[]; aggregate: Aggregate | null;
  reading: Reading; journal: Journal | null;
}
export interface Series { key: string; steps: number[]; times: number[]; values: (number | null)[] }
export interface MetricOfRuns {
  tag: string;
  runs: Record<string, {
    count: number; nonfinite: number; last: number | string; last_step: number; min: number | null;
    min_step: number | null; max: number | null; max_step: number | null; mean: number | null;
  }>;
}
export interface Changes {
  same: boolean; a: string; b: string; problems: string[]; loss_text: string; texts: [string | null, string | null][];
  changes: { section: string; name: string; a: unknown; b: unknown }[];
}
export interface HeatMap { tag: string; ranks: (number | string)[]; steps: number[]; values: (number | string | null)[][] }

// What the address of the page holds.
export interface View {
  run: string; query: string; isRegex: boolean; states: string[]; healths: string[]; columns: string[] | null;
  onlyDiffering: boolean; sort: string; group: string; pinned: string[]; hidden: string[]; showHidden: boolean;
  baseline: string; checked: string[]; changes: boolean; charts: string[]; axis: "step" | "time"; log: boolean; outliers: boolean; smoothing: number;
}
export interface Column {
  id: string; title: string; kind: "text" | "number" | "badge" | "spark"; group: string; tip: string;
  read: (row: Row) => Setting | null; show?: (row: Row, base: Row | null) => (Node | string)[]; distinct: number;
  better: -1 | 0 | 1;
}
export interface GroupItem {
  kind: "group"; key: string; title: string; rows: Row[]; isOpen: boolean;
}
export interface RowItem { kind: "row"; key: string; row: Row; isPinned: boolean }
export type Item = GroupItem | RowItem;
export interface Curve { key: string; name: string; colour: string; xs: number[]; ys: (number | null)[]; band?: (number | null)[] }
