import js from "@eslint/js";
import hooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

/**
 * Imports run one way: routes → features → components, hooks → model → api. `folders`: what `files` may not import;
 * `types`: what they import types from, but nothing else; `packages`: what they do not use; `others`: their folder's neighbours
 * are not imported either.
 */
const layer = (files, { folders = [], types = [], packages = [], others = false }) => ({
  files: [`src/${files}`],
  ignores: ["**/*.test.{ts,tsx}"],
  rules: {
    "@typescript-eslint/no-restricted-imports": ["error", {
      patterns: [
        ...["testing", ...folders].map((folder) => ({ regex: `^(\\.\\./)+${folder}(/|$)`, message: `${files} does not import from ${folder}.` })),
        ...types.map((folder) => ({ regex: `^(\\.\\./)+${folder}(/|$)`, allowTypeImports: true, message: `${files} imports types only from ${folder}.` })),
        ...(others ? [{ regex: "^\\.\\./[^.]", message: `A folder of ${files} does not import another one.` }] : []),
        ...packages.map((name) => ({ regex: `^${name}(/|$)`, message: `${files} does not use ${name}.` })),
      ],
    }],
  },
});

const REACT = ["react", "react-dom", "@tanstack", "wouter", "uplot"];

export default tseslint.config(
  { ignores: ["dist", "src/api/api.d.ts"] }, // generated
  js.configs.recommended,
  {
    files: ["**/*.{ts,tsx}"],
    extends: [...tseslint.configs.strictTypeChecked, ...tseslint.configs.stylisticTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "no-restricted-syntax": ["error", {
        selector: "Property[key.name='refetchInterval'] Literal[value=false]",
        message: "A query that polls no more repeats a reading that failed: untilRead in src/api/retrying.ts.",
      }],
      "max-lines-per-function": ["error", { max: 70, skipBlankLines: true, skipComments: true }],
    },
  },
  layer("api/**", { folders: ["model", "hooks", "components", "features", "routes"], packages: ["react", "react-dom", "wouter", "uplot"] }),
  layer("model/**", { folders: ["hooks", "components", "features", "routes"], types: ["api"], packages: REACT }),
  layer("hooks/**", { folders: ["components", "features", "routes"] }),
  // `Problem` is a class, which a notice of one has to know from other errors.
  layer("components/**", { folders: ["features", "routes"], types: ["api/(?!http$)[^/]+"], packages: ["@tanstack"] }),
  layer("features/**", { folders: ["features", "routes"], others: true }),
  layer("routes/**", {}),
  { files: ["public/docs/*.js"], languageOptions: { globals: { fetch: "readonly", location: "readonly", SwaggerUIBundle: "readonly" } } },
  { files: ["**/*.test.{ts,tsx}"], rules: { "max-lines-per-function": "off" } },
  hooks.configs.flat["recommended-latest"] ?? hooks.configs.flat.recommended,
);
