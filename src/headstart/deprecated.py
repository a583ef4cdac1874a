"""Module paths and names of version 0.1 that changed: they warn and work for one release."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

MOVED = {
    "affine": "linalg.affine",
    "allocator": "kernels.allocator",
    "batches": "batching",
    "blm": "linalg.blm",
    "checkpoints": "storage.checkpoints",
    "convert": "network.convert",
    "data.builtin": "data.synthetic",
    "data.columns": "tabular.columns",
    "data.files": "data.paths",
    "data.forms": "data.specs",
    "data.frames": "tabular.frames",
    "data.schema": "tabular.schema",
    "experiments.document": "reporting.document",
    "experiments.look": "experiments.evaluate",
    "experiments.parts": "experiments.prepare",
    "experiments.plots": "reporting.plots",
    "experiments.suite": "experiments.spec",
    "experiments.suites": "experiments.plan",
    "experiments.summary": "experiments.results",
    "fabric": "distributed.fabric",
    "files": "storage.files",
    "fitting": "training.fit",
    "fused": "kernels.fused",
    "gaussians": "linalg.gaussians",
    "inference.adam": "kernels.adam",
    "layers": "network.layer",
    "learner": "training.recipe",
    "noise": "kernels.noise",
    "passes": "network.forward",
    "persistence": "storage.model",
    "ranks": "distributed.collectives",
    "sampling": "network.samplers",
    "shares": "distributed.sharding",
    "streams": "distributed.stream",
    "tabular.fitting": "tabular.fit",
    "tabular.predicting": "tabular.predict",
}
"""Where the modules of version 0.1 are now."""

_RENAMED = {
    "batching": "to_tensor=network.inputs.to_tensor",
    "bench.command": "HEAD=TABLE_HEAD WIDTH=TABLE_WIDTH bench=run_benchmarks cells=table_cells "
    "race=time_case show=print_tables",
    "bench.rivals": "PLAIN=TORCH_ON_BATCH PLAIN_SAMPLES=TORCH_ON_SAMPLES Step=TakeStep "
    "bayesian_torch=bayesian_torch_step blitz=blitz_step for_each_sample=copy_for_each_sample "
    "ivon=ivon_step once=one_copy ours=headstart_step plain=torch_step pyro=pyro_step "
    "torch_blue=torch_blue_step torchbnn=torchbnn_step",
    "cli": "AsJson=cli.options.JsonOption Backend=cli.options.BackendOption "
    "DataDir=cli.options.DataDirOption Device=cli.options.DeviceOption "
    "Jobs=cli.options.JobsOption Out=cli.options.OutOption "
    "Precision=cli.options.PrecisionOption Seed=cli.options.SeedOption "
    "Threads=cli.options.ThreadsOption bench=cli.experiments.cli_bench "
    "compare=cli.experiments.cli_compare data_app=cli.program.data_app "
    "data_list=cli.data_sets.cli_data_list demo=cli.experiments.cli_demo "
    "fetch=cli.data_sets.cli_data_fetch fit=cli.tables.cli_fit headstart=cli.program.headstart "
    "listed=cli.options.listed predict=cli.tables.cli_predict report=cli.experiments.cli_report "
    "reproduce=cli.experiments.cli_reproduce verify=cli.data_sets.cli_data_verify",
    "curvature": "ITERATIONS=linalg.kronecker.ITERATIONS ROW_BUDGET=PATCH_BUDGET "
    "Split=linalg.kronecker.Damping TOLERANCE=linalg.kronecker.TOLERANCE "
    "damped=linalg.kronecker.damped split_damping=linalg.kronecker.split_damping "
    "without_rounding=linalg.kronecker.without_rounding",
    "data": "Check=FileCheck Row=CatalogueRow",
    "data.datasets": "Check=FileCheck Found=Located Row=CatalogueRow checks=check_files",
    "data.paths": "digest=file_digest",
    "data.specs": "Array=data.readers.AnyArray NAMES=data.registry.NAMES "
    "SPECS=data.registry.SPECS Table=data.readers.TableReader Task=TaskKind "
    "classification=data.readers.class_table idx_images=data.readers.idx_images "
    "regression=data.readers.regression_table spikes=data.readers.has_spike "
    "without_spikes=data.readers.without_spikes",
    "data.synthetic": "diabetes=diabetes_arrays digits=digits_arrays toy=toy_arrays",
    "distributed.fabric": "check=check_fabric",
    "distributed.sharding": "Dealt=InterleavedShard Share=Shard Whole=FullShard "
    "places=distributed.rows.interleaved_positions",
    "distributed.stream": "Own=distributed.rng.TorchRNG "
    "Shared=distributed.rng.SynchronizedRNG Stream=BatchStream Together=distributed.rng.RNG",
    "estimators": "Array=estimators.base.NumpyArray "
    "BayesianEstimator=estimators.base.BayesianEstimator MIN_ROWS=estimators.tables.MIN_ROWS "
    "NOISE_SHARE=training.labels.NOISE_FRACTION "
    "ROWS_AT_ONCE=estimators.base.MAX_CHUNK_ROWS RandomState=estimators.base.RandomState "
    "SETTINGS=estimators.base.RECIPE_PARAMETERS",
    "experiments.command": "INTERRUPTED=EXIT_INTERRUPTED comparison=experiments.plan.comparison "
    "do=do_runs",
    "experiments.demo": "EVERY=EVALUATE_EVERY MODEL=DEMO_MODEL RIVALS=DEMO_INITIALIZERS "
    "demo=race_initializers summary=race_summary",
    "experiments.evaluate": "Look=Evaluation NELBO_NUMBERS=MAX_NELBO_NUMBERS "
    "Numbers=experiments.spec.ResultRow OUTSIDERS=DETECTION_METRICS",
    "experiments.execute": "Outcome=ExecutionSummary check=check_runs label=describe_run",
    "experiments.figures": "LABELS=AXIS_LABELS SCALES=AXIS_SCALES TOPS=AXIS_LIMITS "
    "curve=curve_of_cells entropies=entropy_figure learning=learning_figure "
    "reliability=reliability_figure toy=toy_figure",
    "experiments.pages": "Page=ReportPage",
    "experiments.pages.ablation": "Ablation=AblationPage MAIN=MAIN_METRIC NOTE=HOW_TO_READ",
    "experiments.pages.base": "Page=ReportPage",
    "experiments.pages.pareto": "Pareto=ParetoPage front=pareto_front",
    "experiments.pages.race": "Race=RacePage",
    "experiments.pages.rows": "Rows=RowsPage",
    "experiments.plan": "results_of=experiments.results.results_of spread=product_of_runs",
    "experiments.prepare": "Parts=PreparedData thin=evenly_spaced",
    "experiments.report": "SETTINGS=SHOWN_SETTINGS TITLE=REPORT_TITLE write=write_report",
    "experiments.results": "Pair=experiments.paired.SplitSeed Row=experiments.spec.ResultRow "
    "number=format_number paper=paper_table",
    "experiments.run": "Row=experiments.spec.ResultRow run=run_experiment",
    "experiments.spec": "same=in_every_budget",
    "experiments.store": "Row=experiments.spec.ResultRow",
    "experiments.tasks": "TASKS=EXPERIMENT_TASKS Task=ExperimentTask",
    "experiments.variants": "ABLATION=ABLATION_VARIANTS BASE=BASE_LABEL DEEP=DEEP_VARIANTS "
    "DROPOUT=MC_DROPOUT LENET_ABLATION=LENET_ABLATION_VARIANTS LINES=ROW_SWEEPS "
    "LONG=LONG_VARIANTS Line=RowSweep NOISE=NOISE_VARIANTS PARETO=PARETO_VARIANTS "
    "RACE=RACE_VARIANTS ROWS=ROW_COUNTS by_method=variants_of_method plain=initializer_variant",
    "experiments.verdict": "Judged=JudgedCell OURS=OUR_LABEL by_method=best_of_each_method "
    "lost_cells=cells_behind sentence=verdict_sentence",
    "experiments.workers": "LOOK_SECONDS=POLL_PARENT_SECONDS Work=RunFunction",
    "inference.noisy_kfac": "LEAST_PRIOR=MIN_PRIOR SMALLEST_WEIGHT=MIN_KL_WEIGHT",
    "initializers": "REPORT_ROWS=initializers.registry.REPORT_ROWS",
    "initializers.iblm": "FEWEST_IMAGES=MIN_IMAGES FEWEST_ROWS=MIN_ROWS MOST_PASSES=MAX_PASSES "
    "ROW_BUDGET=DESIGN_BUDGET",
    "initializers.regression": "MOSTLY_NOISE=initializers.certainty.MOSTLY_NOISE "
    "SCARCE=initializers.certainty.SCARCE draw_shares=draw_input_fractions "
    "enough=initializers.certainty.evidence_fraction "
    "evidence_of=initializers.certainty.effective_rows mix=mix_with_inputs "
    "normalising=initializers.rescaling.normalizing "
    "quieting=initializers.rescaling.noise_factor",
    "initializers.settings": "DEFAULT=DEFAULT_SETTINGS LEAST=MINIMA PAPER=PAPER_SETTINGS "
    "Settings=IBLMSettings",
    "initializers.walk": "observe=observe_layers",
    "kernels.allocator": "SETTINGS=MALLOC_OPTIONS",
    "kernels.fused": "Isotropic=kernels.plain.IsotropicKL drawn=dense_by_weights "
    "isotropic=isotropic_kl plain_drawn=kernels.plain.plain_dense_by_weights "
    "plain_isotropic=kernels.plain.plain_isotropic_kl positive=kernels.plain.positive",
    "kernels.noise": "FEW=MIN_NUMBERS FEW_UNITS=MIN_UNITS",
    "likelihoods.base": "CONCENTRATION=likelihoods.targets.CONCENTRATION "
    "lognormal_match=likelihoods.targets.lognormal_match "
    "mixture_quantile=likelihoods.quantiles.mixture_quantile "
    "random_codes=likelihoods.targets.random_codes "
    "standard_features=likelihoods.targets.fourier_features",
    "likelihoods.poisson": "LARGEST_RATE=MAX_RATE",
    "linalg.blm": "BLOCK=GRAM_BLOCK MOST_PATTERNS=MAX_PATTERNS",
    "models": "MOST_LAYERS=MAX_LAYERS",
    "models.resnet": "Block=ResidualBlock",
    "network.forward": "calls=network.probe.calls evaluating=network.probe.evaluating "
    "local_is_approximate=network.probe.local_is_approximate "
    "repeat_rows=network.samplers.repeat_rows",
    "objective": "KLSchedule=training.schedules.KLSchedule "
    "KL_SCHEDULES=training.schedules.KL_SCHEDULES constant=training.schedules.constant "
    "make_schedule=training.schedules.make_kl_schedule sigmoid=training.schedules.sigmoid "
    "warmup=training.schedules.warmup",
    "posteriors": "Moments=posteriors.base.WeightMoments",
    "posteriors.base": "Moments=WeightMoments Prior=GaussianPrior",
    "predictive": "CHUNK_NUMBERS=network.chunks.MAX_PASS_ELEMENTS "
    "CHUNK_ROWS=network.chunks.MAX_PASS_ROWS ROWS_OF_A_SAMPLE=network.chunks.FULL_PASS_ROWS "
    "SAMPLES_AT_ONCE=network.chunks.MAX_PASS_SAMPLES",
    "reporting.plots": "COLOURS=COLORS Entropies=EntropyBins "
    "OTHER_COLOURS=reporting.plots.axes.OTHER_COLORS Reliability=ReliabilityBins "
    "Runner=reporting.plots.predictions.Runner against_rows=scores_against_rows "
    "entropies=entropy_histograms race=draw_race reliabilities=reliability_diagrams "
    "times=scores_against_time",
    "storage.checkpoints": "KIND=CHECKPOINT_KIND",
    "storage.files": "MOST_JSON=MAX_JSON_BYTES whole=atomic_write",
    "storage.model": "KIND=MODEL_KIND MOST_INPUTS=MAX_TRIAL_INPUTS",
    "tabular.columns": "BEND=LOG_BEYOND Category=CategoryColumn Date=DateColumn "
    "FEWEST_OF_A_LEVEL=MIN_LEVEL_ROWS LARGEST=tabular.cells.MAX_NUMBER MOSTLY=MIN_NUMERIC_FRACTION "
    "MOST_LEVELS=MAX_LEVELS Number=NumberColumn bend=log_compress category_of=category_column "
    "listing=reporting.text.listing plural=reporting.text.plural scale_of=center_and_scale",
    "tabular.command": "fit=fit_command predict=predict_command",
    "tabular.fit": "COVERAGES=tabular.evaluation.COVERAGE_LEVELS "
    "FAMILIAR_SHARE=tabular.calibration.FAMILIAR_FRACTION "
    "FEWEST_ROWS=tabular.holdout.MIN_TABLE_ROWS MOST_POINTS=tabular.evaluation.MAX_POINTS "
    "MOST_UNCERTAIN=tabular.evaluation.MAX_UNCERTAIN epistemic=tabular.calibration.epistemic "
    "in_words=tabular.words.scores_in_words",
    "tabular.frames": "CHUNK_ROWS=ROWS_PER_CHUNK plain=plain_frame",
    "tabular.page": "blocks=page_blocks",
    "tabular.predict": "Told=PredictionCounts predictions=prediction_frame",
    "tabular.run": "FOUND=FOUND_FILE LEVELS=tabular.calibration.LEVELS MODEL=MODEL_FILE "
    "OWN=RUN_FILES PAGE=PAGE_FILE TABLE=TABLE_FILE",
    "tabular.schema": "FEWEST_FOR_ID=MIN_ID_ROWS ID_SHARE=MAX_DISTINCT_FRACTION "
    "MOST_CLASSES=tabular.target.MAX_CLASSES MOST_DISTINCT=tabular.target.MAX_NUMERIC_CLASSES "
    "TASKS=tabular.target.TARGET_TASKS",
    "training.recipe": "LARGE=LARGE_TABLE LEAST_BETWEEN=training.trial.MIN_STEPS_BETWEEN "
    "LOOKS=training.trial.MAX_EVALUATIONS LOOK_SAMPLES=training.trial.EVALUATION_SAMPLES "
    "MOST_VALIDATION=training.folds.MAX_VALIDATION_ROWS Outcome=training.learn.RecipeResult "
    "SMALL=SMALL_TABLE hold_out=training.folds.split_validation",
}
"""By module of today: its names of version 0.1, and where they are now."""


def _resolve(module: str, names: str) -> dict[str, tuple[str, str]]:
    """For each old name its home and its name there."""
    found = {}
    for pair in names.split():
        old, new = pair.split("=")
        home, _, name = new.rpartition(".")
        found[old] = (f"headstart.{home or module}", name)
    return found


RENAMED = {module: _resolve(module, names) for module, names in _RENAMED.items()}
"""By module of today: for each name of version 0.1, its home and its name there."""


def _finder_of_names(module: str) -> Callable[[str], object]:
    """The `__getattr__` of a module that has lost names."""
    names = RENAMED[module]

    def find(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module 'headstart.{module}' has no attribute {name!r}")
        home, new = names[name]
        old = f"headstart.{module}.{name}"
        message = f"{old} is now {home}.{new}; the old name goes with the next release."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(import_module(home), new)

    return find


class _WithOldNames(SourceFileLoader):
    """Loads a module of `RENAMED` and lets it answer to its old names."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        vars(module)["__getattr__"] = _finder_of_names(module.__name__.partition(".")[2])


class _Moved(Loader):
    """Gives a module of `MOVED` under its old path."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = f"headstart.{MOVED[spec.name.partition('.')[2]]}"
        message = f"{spec.name} is now {new}; the old path goes with the next release."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        module = import_module(new)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: the module has run under its new path, whose spec it keeps."""
        module.__spec__ = self.spec


class _Finder(MetaPathFinder):
    """Finds the modules of `MOVED` and `RENAMED`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package != "headstart":
            return None
        if name in MOVED:
            return ModuleSpec(fullname, _Moved())
        if name not in RENAMED:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _WithOldNames(spec.loader.name, spec.loader.path)
        return spec


_FINDER = _Finder()


def install() -> None:
    """Let old paths be imported, and let modules answer to their old names.

    Example:
        >>> install()
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     from headstart.batches import Sharded
        ...     from headstart.files import whole
        >>> Sharded.__module__, whole.__name__
        ('headstart.batching', 'atomic_write')
    """
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
